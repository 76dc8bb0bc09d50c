package servingtrustbundle

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

const within = 2 * time.Minute

// world is an engine that has the bundles of the cluster for itself: there is
// one signer, so that the tests of this package are not parallel.
type world struct {
	*harness.Engine
	t     *testing.T
	ca    *certificates.Authority
	mount *certificates.Mount
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ca := certificates.New(t, "root", nil)
	w := &world{
		Engine: harness.New(t, controlplane.Shared(t), harness.Options{WholeCluster: true}),
		t:      t,
		ca:     ca,
		mount:  certificates.NewMount(t, certificates.Bundle(ca.CertPEM)),
	}
	if err := w.Admin.CertificatesV1().ClusterTrustBundles().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) section() *schema.KubeAPIServerServingClusterTrustBundlePublisherController {
	return &schema.KubeAPIServerServingClusterTrustBundlePublisherController{
		ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 1},
		RootCAFile:         w.mount.Path("ca.crt"),
	}
}

func (w *world) start() *harness.Instance {
	w.t.Helper()
	return w.Start(Descriptor(), w.section())
}

// remount puts another CA into another file.
func (w *world) remount() {
	w.t.Helper()
	w.ca = certificates.New(w.t, "another", nil)
	w.mount = certificates.NewMount(w.t, certificates.Bundle(w.ca.CertPEM))
}

// rotate replaces the CA in the mount.
func (w *world) rotate() {
	w.t.Helper()
	w.ca = certificates.New(w.t, "rotated", nil)
	w.mount.Write(w.t, certificates.Bundle(w.ca.CertPEM))
}

func (w *world) list(ctx context.Context) ([]certificatesv1.ClusterTrustBundle, error) {
	list, err := w.Admin.CertificatesV1().ClusterTrustBundles().List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + signerName})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// published waits until the CA's bundle, with another UID than not, is the only one of the signer.
func (w *world) published(not types.UID) *certificatesv1.ClusterTrustBundle {
	w.t.Helper()
	var only *certificatesv1.ClusterTrustBundle
	harness.Eventually(w.t, within, "bundle of the CA", func(ctx context.Context) error {
		all, err := w.list(ctx)
		if err != nil {
			return err
		}
		if len(all) != 1 {
			return fmt.Errorf("there are %d", len(all))
		}
		only = &all[0]
		if only.UID == not || only.Spec.TrustBundle != string(w.ca.CertPEM) {
			return fmt.Errorf("it is %s with %q", only.Name, only.Spec.TrustBundle)
		}
		return nil
	})
	return only
}

func (w *world) create(name, signer string) {
	w.t.Helper()
	_, err := w.Admin.CertificatesV1().ClusterTrustBundles().Create(w.t.Context(), &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.ClusterTrustBundleSpec{
			SignerName: signer, TrustBundle: string(certificates.New(w.t, "extra", nil).CertPEM),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.Admin.CertificatesV1().ClusterTrustBundles().Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// counted waits for a metric of syncs with a code.
func counted(t *testing.T, controller *harness.Instance, code string) {
	t.Helper()
	harness.Eventually(t, within, "sync with code "+code, func(context.Context) error {
		families, err := controller.Metrics.Gather()
		if err != nil {
			return err
		}
		for _, family := range families {
			if family.GetName() != "clustertrustbundle_publisher_sync_total" {
				continue
			}
			for _, metric := range family.Metric {
				if metric.Label[0].GetValue() == code && metric.GetCounter().GetValue() >= 1 {
					return nil
				}
			}
		}
		return errors.New("it is not counted")
	})
}

func TestAcceptance01_TheBundleIsPublished(t *testing.T) {
	w := newWorld(t)
	w.start()
	bundle := w.published("")
	if want := nameOf(string(w.ca.CertPEM)); bundle.Name != want || !strings.HasPrefix(want, "kubernetes.io:kube-apiserver-serving:") ||
		len(want) != len("kubernetes.io:kube-apiserver-serving:")+24 {
		t.Errorf("name %s, want %s", bundle.Name, want)
	}
	if len(bundle.Labels)+len(bundle.Annotations)+len(bundle.OwnerReferences) > 0 {
		t.Errorf("it has more than a name: %+v", bundle.ObjectMeta)
	}
}

func TestAcceptance08_SyncsAreCounted(t *testing.T) {
	w := newWorld(t)
	controller := w.start()
	w.published("")
	counted(t, controller, "200")
	families, err := controller.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, family := range families {
		names = append(names, family.GetName())
	}
	if !slices.Contains(names, "clustertrustbundle_publisher_sync_duration_seconds") {
		t.Errorf("metrics: %v", names)
	}
}

func TestTheName(t *testing.T) {
	// printf hello | sha256sum | head -c 24
	if got, want := nameOf("hello"), "kubernetes.io:kube-apiserver-serving:2cf24dba5fb0a30e26e83b2a"; got != want {
		t.Errorf("name %s, want %s", got, want)
	}
}

func TestAcceptance02_DeletionsAndEditsAreRepaired(t *testing.T) {
	w := newWorld(t)
	w.start()
	first := w.published("")
	w.delete(first.Name)
	second := w.published(first.UID)
	edited := second.DeepCopy()
	edited.Spec.TrustBundle = string(certificates.New(t, "other", nil).CertPEM)
	if _, err := w.Admin.CertificatesV1().ClusterTrustBundles().Update(t.Context(), edited, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if third := w.published(first.UID); third.UID != second.UID {
		t.Error("the edited one was replaced")
	}
}

func TestAcceptance03_OtherBundlesOfTheSignerAreDeleted(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.published("")
	w.create("example.com:foo:x", "example.com/foo")
	w.create("plain", "")
	w.create("kubernetes.io:kube-apiserver-serving:extra", signerName)
	w.published("")
	for _, name := range []string{"example.com:foo:x", "plain"} {
		if _, err := w.Admin.CertificatesV1().ClusterTrustBundles().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("%s does not stay: %v", name, err)
		}
	}
	for _, r := range w.Writes(bundles.GroupResource()) {
		if r.Verb == "delete" && r.Name != "kubernetes.io:kube-apiserver-serving:extra" {
			t.Errorf("deleted: %+v", r)
		}
	}
}

// events of the signer's bundles, as TYPE NAME, first those of what is there.
// The returned function waits for an event and returns those up to it.
func (w *world) events() (until func(last string) []string) {
	w.t.Helper()
	var mu sync.Mutex
	var seen []string
	options := metav1.ListOptions{FieldSelector: "spec.signerName=" + signerName}
	harness.Follow(w.t, w.Admin.CertificatesV1().ClusterTrustBundles(), options,
		func(event watch.EventType, bundle *certificatesv1.ClusterTrustBundle) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, string(event)+" "+bundle.Name)
		})
	return func(last string) (events []string) {
		w.t.Helper()
		harness.Eventually(w.t, within, last, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			at := slices.Index(seen, last)
			if at < 0 {
				return fmt.Errorf("seen: %v", seen)
			}
			events = slices.Clone(seen[:at+1])
			return nil
		})
		return events
	}
}

func TestAcceptance04_TheNewBundleComesBeforeTheOldOneGoes(t *testing.T) {
	for name, change := range map[string]func(*world, *harness.Instance){
		"by a restart": func(w *world, controller *harness.Instance) {
			w.remount()
			controller.Reconfigure(w.section())
		},
		"by the file": func(w *world, _ *harness.Instance) { w.rotate() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			controller := w.start()
			old := w.published("").Name
			until := w.events()
			change(w, controller)
			renewed := w.published("").Name
			want := []string{string(watch.Added) + " " + old, string(watch.Added) + " " + renewed, string(watch.Deleted) + " " + old}
			if got := until(want[2]); !slices.Equal(got, want) {
				t.Errorf("events %v, want %v", got, want)
			}
		})
	}
}

func TestAcceptance05_ARestartWithTheSameCAWritesNothing(t *testing.T) {
	w := newWorld(t)
	controller := w.start()
	w.published("")
	for range 3 {
		controller.Restart()
	}
	w.create("kubernetes.io:kube-apiserver-serving:extra", signerName)
	w.published("")
	// The answer to a deletion does not say its version, so that it may be tried again in vain.
	inVain := func(r apiproxy.Request) bool { return r.Verb == "delete" && r.Code == http.StatusNotFound }
	if writes := slices.DeleteFunc(w.Writes(bundles.GroupResource()), inVain); len(writes) != 2 {
		t.Errorf("writes: %+v", writes)
	}
}

func TestAcceptance06_WithoutTheAPIItIsUnavailable(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), controlplane.Options{
		APIServerArgs: []string{"--feature-gates=ClusterTrustBundle=false,ClusterTrustBundleProjection=false"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	m := harness.StartManager(t, cp, harness.ManagerOptions{}, Descriptor())
	m.AwaitState(Descriptor().Name(), "Unavailable", "does not serve clustertrustbundles")
	harness.Eventually(t, within, "health", func(ctx context.Context) error {
		code, body, err := m.Get(ctx, "/healthz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d: %s", code, body)
		}
		return err
	})
}

func TestAcceptance07_ACertificateOfNoCAIsRefusedByTheAPIServer(t *testing.T) {
	w := newWorld(t)
	controller := w.start()
	before := w.published("")
	leaf := certificates.New(t, "leaf", func(c *x509.Certificate) { c.IsCA = false })
	w.mount.Write(t, certificates.Bundle(leaf.CertPEM))
	counted(t, controller, "422")
	if after := w.published(""); after.UID != before.UID {
		t.Error("the old bundle was replaced")
	}
	// At most 14 retries are possible in a minute that begin with 5 ms and double.
	if refused := len(w.Writes(bundles.GroupResource())) - 1; refused > 20 {
		t.Errorf("%d attempts", refused)
	}
	w.rotate()
	w.published("")
}

func TestWithoutAnyCAItIsUnavailable(t *testing.T) {
	descriptor := Descriptor()
	if reason := descriptor.Unavailable(descriptor.Section.New(), nil); !strings.Contains(reason, "rootCAFile") {
		t.Errorf("reason %q does not name the setting", reason)
	}
}

func TestTheCAOfTheProcessIsPublished(t *testing.T) {
	w := newWorld(t)
	var err error
	if w.ca.CertPEM, err = os.ReadFile(controlplane.Shared(t).PKI.CAFile); err != nil {
		t.Fatal(err)
	}
	w.Start(Descriptor(), nil)
	w.published("")
}

func TestReloadsAtAnyMomentChangeNothing(t *testing.T) {
	w := newWorld(t)
	controller := w.start()
	const extra = "kubernetes.io:kube-apiserver-serving:extra-"
	w.published("")
	present := map[string]bool{}
	until := w.events()
	deleted := map[string]bool{}
	stop := controller.Reload(uint64(time.Now().UnixNano()), 50, 5)
	for i := range 12 {
		w.create(fmt.Sprint(extra, i), signerName)
		if i%3 == 0 {
			w.rotate()
		}
		bundle := w.published("")
		if i%4 == 1 {
			w.delete(bundle.Name)
			deleted[bundle.Name] = true
		}
	}
	stop()
	w.published("")
	const last = extra + "last"
	w.create(last, signerName)
	end := w.published("").Name

	// A bundle of the file is there at every moment, unless the test deletes it.
	made := map[string]int{}
	for _, event := range until("DELETED " + last) {
		kind, name, _ := strings.Cut(event, " ")
		switch {
		case strings.HasPrefix(name, extra):
		case kind == string(watch.Added):
			present[name] = true
			made[name]++
		case kind == string(watch.Deleted):
			delete(present, name)
			if len(present) == 0 && !deleted[name] {
				t.Errorf("%s was deleted before its successor was there", name)
			}
		default:
			t.Errorf("unexpected event: %s", event)
		}
	}
	for name, count := range made {
		if want := 1 + boolCount(deleted[name]); count > want {
			t.Errorf("%s was made %d times, want %d", name, count, want)
		}
	}
	if len(present) != 1 || !present[end] {
		t.Errorf("in the end there are %v, want %s", present, end)
	}
	for _, r := range w.Writes(bundles.GroupResource()) {
		if r.Code >= http.StatusBadRequest && r.Code != http.StatusNotFound {
			t.Errorf("refused: %+v", r)
		}
	}
}

// boolCount is 1 for true.
func boolCount(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestAKeyInTheFileIsNeverPublished(t *testing.T) {
	w := newWorld(t)
	controller := w.start()
	before := w.published("")
	w.mount.Write(t, certificates.Bundle(append(bytes.Clone(w.ca.CertPEM), w.ca.KeyPEM...)))
	harness.Eventually(t, within, "rejection", func(context.Context) error {
		if summary := controller.Summary(); !strings.Contains(summary, "it holds a private key") {
			return fmt.Errorf("summary: %s", summary)
		}
		return nil
	})
	w.create("kubernetes.io:kube-apiserver-serving:extra", signerName)
	if after := w.published(""); after.UID != before.UID {
		t.Error("the bundle was replaced")
	}
}
