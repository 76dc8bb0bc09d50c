package podcertificatecleaner_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/csrcleaner"
	"github.com/wheelhouse-project/wheelhouse/controllers/podcertificatecleaner"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

// soon is ample on a busy machine.
const soon = 2 * time.Minute

var requestResource = certificatesv1.SchemeGroupVersion.WithResource("podcertificaterequests")

// world is a namespace, and a controller whose clock the test sets forward.
type world struct {
	*harness.Engine
	t          *testing.T
	clock      *clocktesting.FakeClock
	controller *harness.Instance

	mu sync.Mutex
	// deletions that were accepted: when they were, by the controller's clock.
	deletions map[string]time.Time
}

func start(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.controller = w.Start(podcertificatecleaner.Descriptor(), nil)
	return w
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: harness.NewClock(t, time.Now()), deletions: map[string]time.Time{}}
	w.Engine = harness.New(t, controlplane.Shared(t), harness.Options{Clock: w.clock})
	w.Proxy.After(func(r apiproxy.Request) {
		if r.Verb == "delete" && r.Code == http.StatusOK {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.deletions[r.Name] = w.clock.Now()
		}
	})
	return w
}

// request creates a request as a kubelet does.
func (w *world) request(name string, finalizers ...string) *certificatesv1.PodCertificateRequest {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		w.t.Fatal(err)
	}
	request, err := w.Admin.CertificatesV1().PodCertificateRequests(w.Namespace).Create(w.t.Context(), &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/s", PodName: "p", PodUID: "1", ServiceAccountName: "s", ServiceAccountUID: "2",
			NodeName: "n", NodeUID: "3", MaxExpirationSeconds: ptr.To[int32](86400), StubPKCS10Request: stub,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return request
}

// deny a request, as its signer does.
func (w *world) deny(name string) {
	w.t.Helper()
	w.settle(name, certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestStatus{})
}

// issue the certificate of a request, as its signer does.
func (w *world) issue(name string) {
	w.t.Helper()
	request := w.get(name)
	from := request.CreationTimestamp.Time
	ca := certificates.New(w.t, "pods", nil)
	stub, err := x509.ParseCertificateRequest(request.Spec.StubPKCS10Request)
	if err != nil {
		w.t.Fatal(err)
	}
	lasts := 24 * time.Hour
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: from.Add(lasts),
	}, ca.Certificate, stub.PublicKey, ca.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	at := func(after time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(from.Add(after))) }
	w.settle(name, certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestStatus{
		CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore:        at(0), BeginRefreshAt: at(lasts / 2), NotAfter: at(lasts),
	})
}

// settle a request with a condition, and with what goes with it.
func (w *world) settle(name, condition string, status certificatesv1.PodCertificateRequestStatus) {
	w.t.Helper()
	request := w.get(name)
	request.Status = status
	request.Status.Conditions = []metav1.Condition{{
		Type: condition, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now(),
	}}
	_, err := w.Admin.CertificatesV1().PodCertificateRequests(w.Namespace).UpdateStatus(w.t.Context(), request, metav1.UpdateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(name string) *certificatesv1.PodCertificateRequest {
	w.t.Helper()
	request, err := w.Admin.CertificatesV1().PodCertificateRequests(w.Namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return request
}

// age sets the clock to when a request is as old as that. Its time of creation
// is the API server's, which goes on faster.
func (w *world) age(request *certificatesv1.PodCertificateRequest, to time.Duration) {
	w.clock.SetTime(request.CreationTimestamp.Add(to))
}

func (w *world) gone(names ...string) {
	w.t.Helper()
	for _, name := range names {
		harness.Eventually(w.t, soon, "end of "+name, func(context.Context) error {
			if w.get(name) != nil {
				return errors.New("it is still there")
			}
			return nil
		})
	}
}

// idle returns when the controller has been idle for a moment.
func (w *world) idle() {
	w.t.Helper()
	w.controller.CatchUp()
	var quiet time.Time
	harness.Eventually(w.t, soon, "quiet", func(context.Context) error {
		if status := w.controller.Work(); status.Busy > 0 || status.Depth > 0 || quiet.IsZero() {
			quiet = time.Now()
		}
		if time.Since(quiet) < 100*time.Millisecond {
			return errors.New("something was going on just now")
		}
		return nil
	})
}

// deleted fails the test unless a request was deleted between two ages.
func (w *world) deleted(request *certificatesv1.PodCertificateRequest, from, to time.Duration) {
	w.t.Helper()
	var at time.Time
	harness.Eventually(w.t, soon, "the answer to the deletion of "+request.Name, func(context.Context) (err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		var ok bool
		if at, ok = w.deletions[request.Name]; !ok {
			err = errors.New("none so far")
		}
		return err
	})
	w.gone(request.Name)
	if age := at.Sub(request.CreationTimestamp.Time); age < from || age > to {
		w.t.Errorf("%s was deleted at an age of %s, want %s to %s", request.Name, age, from, to)
	}
}

func section(t *testing.T, interval, threshold time.Duration) *schema.PodCertificateRequestCleanerController {
	t.Helper()
	section, ok := schema.PodCertificateRequestCleanerControllerSection().New().(*schema.PodCertificateRequestCleanerController)
	if !ok {
		t.Fatal("not the section of this controller")
	}
	section.Interval.Duration, section.Threshold.Duration = interval, threshold
	return section
}

func TestAcceptance01And02_RequestsGoAfterAQuarterOfAnHour(t *testing.T) {
	t.Parallel()
	w := start(t)
	pending, denied, issued := w.request("pending"), w.request("denied"), w.request("issued")
	w.deny("denied")
	w.issue("issued")
	for range 2 { // 10 min
		w.idle()
		w.clock.Step(5*time.Minute + time.Second)
	}
	w.idle()
	for _, name := range []string{"pending", "denied", "issued"} {
		if w.get(name) == nil {
			t.Errorf("%s went before its time", name)
		}
	}
	w.age(issued, 16*time.Minute)
	w.deleted(pending, 15*time.Minute, 20*time.Minute)
	w.deleted(denied, 15*time.Minute, 20*time.Minute)
	w.deleted(issued, 15*time.Minute, 20*time.Minute)
}

func TestAcceptance03_APassIsMadeAtTheStart(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := w.request("r")
	w.idle()
	w.controller.Stop()
	w.age(r, 16*time.Minute)
	if w.get("r") == nil {
		t.Fatal("a stopped controller has deleted it")
	}
	w.controller.Start()
	w.gone("r")
}

func TestAcceptance04_ARequestThatIsHeldKeepsNoOther(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.request("a")
	w.request("held", "example.com/hold")
	z := w.request("z")
	w.idle()
	w.age(z, 16*time.Minute)
	w.gone("a", "z")
	w.idle()
	if held := w.get("held"); held == nil || held.DeletionTimestamp == nil {
		t.Fatalf("it is not held in deletion: %+v", held)
	}
	// Another deletion would change nothing.
	w.Proxy.Forget()
	for range 3 {
		w.clock.Step(5*time.Minute + time.Second)
		w.idle()
	}
	if writes := w.Writes(requestResource.GroupResource()); len(writes) > 0 {
		t.Errorf("written again: %+v", writes)
	}
}

func TestAcceptance05_AnAPIServerThatDoesNotServeThem(t *testing.T) {
	t.Parallel()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		Audit: true, APIServerArgs: []string{"--feature-gates=PodCertificateRequest=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	other := csrcleaner.Descriptor()
	m := harness.StartManager(t, cp, harness.ManagerOptions{}, podcertificatecleaner.Descriptor(), other)
	m.AwaitState(podcertificatecleaner.Descriptor().Name(), "Unavailable", "does not serve podcertificaterequests")
	m.AwaitState(other.Name(), "Running", "")
	// By the time the other one has asked, this one would have, too.
	requested := func(resource string) []auditv1.Event {
		entries, err := cp.Audit().Requests(0, func(entry auditv1.Event) bool {
			return entry.ObjectRef != nil && entry.ObjectRef.Resource == resource
		})
		if err != nil {
			t.Fatal(err)
		}
		return entries
	}
	harness.Eventually(t, soon, "requests of "+other.Name(), func(context.Context) error {
		if len(requested("certificatesigningrequests")) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	if entries := requested(requestResource.Resource); len(entries) > 0 {
		t.Errorf("asked for what is not served: %+v", entries)
	}
}

func TestAcceptance06_ANamesakeLives(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.request("r")
	w.idle()
	release := w.Proxy.HoldWatches(requestResource.GroupResource())
	defer release()
	if err := w.Admin.CertificatesV1().PodCertificateRequests(w.Namespace).Delete(t.Context(), "r", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	successor := w.request("r")
	w.age(successor, 16*time.Minute)
	harness.Eventually(t, soon, "refused deletion", func(context.Context) error {
		refused := w.Proxy.Requests(func(r apiproxy.Request) bool { return r.Verb == "delete" && r.Code == http.StatusConflict })
		if len(refused) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	if now := w.get("r"); now == nil || now.UID != successor.UID || now.DeletionTimestamp != nil {
		t.Errorf("the successor is %+v", now)
	}
	if status := w.controller.Work(); status.LastError != "" {
		t.Errorf("error %s, although nothing has failed", status.LastError)
	}
}

func TestThresholdAndIntervalAreChangedWhileItRuns(t *testing.T) {
	t.Parallel()
	w := start(t)
	old := w.request("old")
	w.idle()
	w.age(old, time.Minute)
	w.controller.ApplyLive(section(t, 2*time.Second, 30*time.Second))
	w.gone("old")
	w.controller.ApplyLive(section(t, 2*time.Second, 2*time.Hour))
	young := w.request("young")
	w.idle()
	w.age(young, time.Hour)
	w.idle()
	if w.get("young") == nil {
		t.Fatal("it went before its time")
	}
	w.age(young, 2*time.Hour)
	w.deleted(young, 2*time.Hour, 2*time.Hour+10*time.Minute)
}

func TestReloadsAtAnyMomentDeleteOnlyWhatIsOld(t *testing.T) {
	t.Parallel()
	w := start(t)
	requests := w.Admin.CertificatesV1().PodCertificateRequests(w.Namespace)
	var mu sync.Mutex
	deleted := map[types.UID]bool{}
	complete := false
	harness.Follow(t, requests, metav1.ListOptions{}, func(event watch.EventType, request *certificatesv1.PodCertificateRequest) {
		mu.Lock()
		defer mu.Unlock()
		if event == watch.Deleted {
			deleted[request.UID] = true
		}
		complete = complete || request.Name == "last"
	})

	stop := w.controller.Disturb(uint64(time.Now().UnixNano()))
	const count = 40
	var youngest *certificatesv1.PodCertificateRequest
	for n := range count {
		youngest = w.request(fmt.Sprintf("r-%d", n))
		w.clock.Step(20 * time.Second) // 13 min 20 s in all
	}
	first := w.get("r-0")
	if first == nil {
		t.Fatal("a request went before its time")
	}
	w.age(youngest, 16*time.Minute)
	for n := range count {
		w.gone(fmt.Sprintf("r-%d", n))
	}
	stop()
	w.idle()
	w.request("last")
	harness.Eventually(t, soon, "the last event", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if !complete {
			return errors.New("the watch has not brought it")
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if len(deleted) != count {
		t.Errorf("%d requests were deleted, want %d", len(deleted), count)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, at := range w.deletions {
		if age := at.Sub(first.CreationTimestamp.Time); age < 15*time.Minute {
			t.Errorf("%s was deleted at an age of less than %s", name, age)
		}
	}
}
