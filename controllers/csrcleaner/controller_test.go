package csrcleaner_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
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
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/csrcleaner"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// Requests have no namespace, so that the tests of this package run one after
// the other.
func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

const (
	// soon is ample on a busy machine.
	soon     = 2 * time.Minute
	approved = certificatesv1.CertificateApproved
	denied   = certificatesv1.CertificateDenied
	failed   = certificatesv1.CertificateFailed
)

var requestResource = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")

// world is a control plane, and a controller whose clock the test sets forward.
type world struct {
	*harness.Engine
	t          *testing.T
	clock      *clocktesting.FakeClock
	controller *harness.Instance
	sentinels  int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, clock: harness.NewClock(t, time.Now())}
	w.Engine = harness.New(t, controlplane.Shared(t), harness.Options{Clock: w.clock})
	t.Cleanup(func() {
		err := w.Admin.CertificatesV1().CertificateSigningRequests().DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	return w
}

func start(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.controller = w.Start(csrcleaner.Descriptor(), nil)
	w.idle() // a late first pass would see what the test makes
	return w
}

func section(t *testing.T) *schema.CertificateSigningRequestCleanerController {
	t.Helper()
	section, ok := schema.CertificateSigningRequestCleanerControllerSection().New().(*schema.CertificateSigningRequestCleanerController)
	if !ok {
		t.Fatal("not the section of this controller")
	}
	return section
}

// newKey for requests and certificates.
func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (w *world) certificateUntil(end time.Time) []byte {
	w.t.Helper()
	key := newKey(w.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "c"}, NotBefore: end.Add(-1000 * time.Hour), NotAfter: end,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// request creates a request without a decision.
func (w *world) request(name string) *certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "c"}}, newKey(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	request, err := w.Admin.CertificatesV1().CertificateSigningRequests().Create(w.t.Context(), &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: "example.com/s",
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return request
}

// decide adds a condition that is said to be as old as that, by the controller's clock.
func (w *world) decide(name string, kind certificatesv1.RequestConditionType, ago time.Duration) {
	w.t.Helper()
	request := w.get(name)
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: v1.ConditionTrue, Reason: "Test", LastUpdateTime: metav1.NewTime(w.clock.Now().Add(-ago)),
	})
	requests := w.Admin.CertificatesV1().CertificateSigningRequests()
	var err error
	if kind == approved || kind == denied {
		_, err = requests.UpdateApproval(w.t.Context(), name, request, metav1.UpdateOptions{})
	} else {
		_, err = requests.UpdateStatus(w.t.Context(), request, metav1.UpdateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// issue a certificate that expires at a time.
func (w *world) issue(name string, end time.Time) {
	w.t.Helper()
	request := w.get(name)
	request.Status.Certificate = w.certificateUntil(end)
	if _, err := w.Admin.CertificatesV1().CertificateSigningRequests().UpdateStatus(w.t.Context(), request, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// get returns a request, nil when it is gone.
func (w *world) get(name string) *certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	request, err := w.Admin.CertificatesV1().CertificateSigningRequests().Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return request
}

func (w *world) gone(name string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "end of "+name, func(context.Context) error {
		if w.get(name) != nil {
			return errors.New("it is still there")
		}
		return nil
	})
}

// idle waits for the end of the pass.
func (w *world) idle() {
	w.t.Helper()
	harness.Eventually(w.t, soon, "end of the pass", func(context.Context) error {
		if status := w.controller.Work(); status.Busy > 0 || status.Depth > 0 {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
}

// pass lets the controller see everything there is, and make a pass when the
// clock has gone on by a time.
func (w *world) pass(after time.Duration) {
	w.t.Helper()
	w.sentinels++
	name := fmt.Sprintf("sentinel-%d", w.sentinels)
	w.request(name)
	w.decide(name, denied, 1000*time.Hour)
	w.controller.CatchUp()
	w.idle()
	w.clock.Step(after)
	w.gone(name)
	w.idle()
}

// expect that these requests are there, and those not.
func (w *world) expect(kept []string, gone ...string) {
	w.t.Helper()
	for _, name := range kept {
		if w.get(name) == nil {
			w.t.Errorf("%s is gone", name)
		}
	}
	for _, name := range gone {
		if w.get(name) != nil {
			w.t.Errorf("%s is still there", name)
		}
	}
}

// anInterval has passed.
const anInterval = time.Hour + time.Second

func TestAcceptance01_IssuedRequestsGoAfterAnHour(t *testing.T) {
	w := start(t)
	for name, ago := range map[string]time.Duration{"long-ago": time.Hour, "lately": 50*time.Minute - anInterval} {
		w.request(name)
		w.decide(name, approved, ago)
		w.issue(name, w.clock.Now().Add(10*time.Hour))
	}
	w.pass(anInterval)
	w.expect([]string{"lately"}, "long-ago")
}

func TestAcceptance02_DeniedAndFailedRequestsGoAfterAnHour(t *testing.T) {
	w := start(t)
	for name, ago := range map[string]time.Duration{"long-ago": time.Hour, "lately": 50*time.Minute - anInterval} {
		w.request("denied-" + name)
		w.decide("denied-"+name, denied, ago)
		w.request("failed-" + name)
		w.decide("failed-"+name, approved, time.Hour)
		w.decide("failed-"+name, failed, ago)
	}
	w.pass(anInterval)
	w.expect([]string{"denied-lately", "failed-lately"}, "denied-long-ago", "failed-long-ago")
}

func TestAcceptance03_ApprovedRequestsWithoutACertificateGoAfterADay(t *testing.T) {
	w := start(t)
	for name, ago := range map[string]time.Duration{"long-ago": 24 * time.Hour, "lately": 4 * time.Hour} {
		w.request(name)
		w.decide(name, approved, ago)
	}
	w.pass(anInterval)
	w.expect([]string{"lately"}, "long-ago")
}

func TestAcceptance04_PendingRequestsGoAfterADay(t *testing.T) {
	w := start(t)
	w.request("pending")
	w.pass(5 * time.Hour)
	w.expect([]string{"pending"})
	w.pass(20 * time.Hour)
	w.expect(nil, "pending")
}

func TestAcceptance05_ARequestWhoseCertificateHasExpiredGoesAtOnce(t *testing.T) {
	w := start(t)
	for name, end := range map[string]time.Duration{"expired": 0, "valid": 10 * time.Hour} {
		w.request(name)
		w.decide(name, approved, time.Minute-anInterval)
		w.issue(name, w.clock.Now().Add(end))
	}
	w.pass(anInterval)
	w.expect([]string{"valid"}, "expired")
}

func TestAcceptance06_ARequestWithAConditionOfAnotherKindStays(t *testing.T) {
	w := start(t)
	w.request("r")
	w.decide("r", "Foo", 0)
	w.pass(30 * 24 * time.Hour)
	w.expect([]string{"r"})
}

func TestAcceptance07_APassIsMadeAtTheStart(t *testing.T) {
	w := newWorld(t)
	w.request("first")
	w.decide("first", denied, 2*time.Hour)
	w.controller = w.Start(csrcleaner.Descriptor(), nil)
	w.gone("first")
	w.request("second")
	w.decide("second", denied, 2*time.Hour)
	w.controller.CatchUp()
	w.idle()
	w.expect([]string{"second"})
	w.controller.Restart()
	w.gone("second")
}

func TestPeriodsAndTheIntervalAreChangedWhileItRuns(t *testing.T) {
	w := start(t)
	w.request("denied")
	w.decide("denied", denied, 30*time.Minute)
	w.request("pending")
	w.controller.CatchUp()
	w.idle()

	shorter := section(t)
	shorter.DeniedPeriod.Duration = 20 * time.Minute
	shorter.Interval.Duration = time.Minute
	w.controller.ApplyLive(shorter)
	w.gone("denied")
	w.expect([]string{"pending"})

	w.request("later")
	w.decide("later", denied, 19*time.Minute+30*time.Second)
	w.pass(2 * time.Minute)
	w.expect([]string{"pending"}, "later")
}

func TestARequestThatIsNotTheOneThatWasJudgedStays(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(w *world)
	}{
		{"it was approved", func(w *world) { w.decide("r", approved, -24*time.Hour) }},
		{"it was replaced", func(w *world) {
			if err := w.Admin.CertificatesV1().CertificateSigningRequests().Delete(w.t.Context(), "r", metav1.DeleteOptions{}); err != nil {
				w.t.Fatal(err)
			}
			w.request("r")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := start(t)
			w.request("r")
			w.controller.CatchUp()
			w.idle()
			release := w.Proxy.HoldWatches(requestResource.GroupResource())
			defer release()
			test.change(w)
			w.clock.Step(25 * time.Hour)
			harness.Eventually(t, soon, "refused deletion", func(context.Context) error {
				if len(w.requests(http.StatusConflict)) == 0 {
					return errors.New("none yet")
				}
				return nil
			})
			w.idle()
			w.expect([]string{"r"})
			if status := w.controller.Work(); status.LastError != "" {
				t.Errorf("error %s, although nothing has failed", status.LastError)
			}
		})
	}
}

// requests to delete that got an answer.
func (w *world) requests(code int) []apiproxy.Request {
	return w.Proxy.Requests(func(r apiproxy.Request) bool { return r.Verb == "delete" && r.Code == code })
}

func TestARefusedDeletionIsRepeatedAndKeepsNoOther(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"refused", "a", "b"} {
		w.request(name)
		w.decide(name, denied, 2*time.Hour)
	}
	allow := w.Proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == "delete" && r.Name == "refused" }, http.StatusForbidden, 0)
	w.controller = w.Start(csrcleaner.Descriptor(), nil)
	w.gone("a")
	w.gone("b")
	harness.Eventually(t, soon, "refusal", func(context.Context) error {
		if len(w.requests(http.StatusForbidden)) == 0 {
			return errors.New("none yet")
		}
		return nil
	})
	allow()
	w.gone("refused") // long before the next pass
}

func TestReloadsAtAnyMomentDeleteOnlyWhatIsDue(t *testing.T) {
	w := start(t)
	var mu sync.Mutex
	deleted := map[types.UID]bool{}
	complete := false
	requests := w.Admin.CertificatesV1().CertificateSigningRequests()
	harness.Follow(t, requests, metav1.ListOptions{}, func(event watch.EventType, request *certificatesv1.CertificateSigningRequest) {
		mu.Lock()
		defer mu.Unlock()
		if event == watch.Deleted {
			deleted[request.UID] = true
		}
		complete = complete || request.Name == "last"
	})

	stop := w.controller.Disturb(uint64(time.Now().UnixNano()))
	living := map[types.UID]string{}
	var doomed []string
	for n := range 40 {
		name := fmt.Sprintf("r-%d", n)
		request := w.request(name)
		if n%2 == 0 {
			living[request.UID] = name
			if n%4 == 0 {
				w.decide(name, denied, -1000*time.Hour)
			}
		} else {
			w.decide(name, denied, time.Duration(n)*time.Minute)
			doomed = append(doomed, name)
		}
		w.clock.Step(10 * time.Minute)
	}
	stop()
	w.clock.Step(anInterval)
	w.pass(anInterval)
	w.pass(anInterval)
	w.expect(nil, doomed...)

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
	for uid, name := range living {
		if deleted[uid] {
			t.Errorf("%s was deleted", name)
		}
	}
}
