package rootca

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

const within = 2 * time.Minute

// world is an engine that sees the namespaces of one test only.
type world struct {
	*harness.Engine
	t     *testing.T
	label string
	// ca is what mount holds.
	ca    *certificates.Authority
	mount *certificates.Mount
}

func newWorld(t *testing.T) *world {
	t.Helper()
	label := rand.String(10)
	ca := certificates.New(t, "root", nil)
	return &world{
		Engine: harness.New(t, controlplane.Shared(t), harness.Options{Scope: apiproxy.Scope{NamespaceSelector: "test=" + label}}),
		t:      t,
		label:  label,
		ca:     ca,
		mount:  certificates.NewMount(t, certificates.Bundle(ca.CertPEM)),
	}
}

func (w *world) start() *harness.Instance {
	w.t.Helper()
	return w.Start(Descriptor(), section(w.mount))
}

func section(mount *certificates.Mount) *schema.RootCACertificatePublisherController {
	return &schema.RootCACertificatePublisherController{
		ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 2},
		RootCAFile:         mount.Path("ca.crt"),
	}
}

// rotate replaces the CA in the mount.
func (w *world) rotate() {
	w.t.Helper()
	w.ca = certificates.New(w.t, "rotated", nil)
	w.mount.Write(w.t, certificates.Bundle(w.ca.CertPEM))
}

func (w *world) namespace() string {
	w.t.Helper()
	namespace, err := w.Admin.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "root-ca-", Labels: map[string]string{"test": w.label}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return namespace.Name
}

// published waits until the ConfigMap of a namespace holds the CA, with another UID than not.
func (w *world) published(namespace string, not types.UID) *corev1.ConfigMap {
	w.t.Helper()
	var configMap *corev1.ConfigMap
	harness.Eventually(w.t, within, "root CA in "+namespace, func(ctx context.Context) (err error) {
		configMap, err = w.Admin.CoreV1().ConfigMaps(namespace).Get(ctx, configMapName, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case configMap.UID == not:
			return errors.New("it is still the old one")
		case !maps.Equal(configMap.Data, map[string]string{"ca.crt": string(w.ca.CertPEM)}):
			return fmt.Errorf("it holds %v", configMap.Data)
		case configMap.Annotations[descriptionAnnotation] == "":
			return errors.New("it is not described")
		}
		return nil
	})
	return configMap
}

func (w *world) delete(namespace, name string) {
	w.t.Helper()
	if err := w.Admin.CoreV1().ConfigMaps(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(namespace string, configMap *corev1.ConfigMap) {
	w.t.Helper()
	if _, err := w.Admin.CoreV1().ConfigMaps(namespace).Create(w.t.Context(), configMap, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) patch(namespace, patch string) {
	w.t.Helper()
	_, err := w.Admin.CoreV1().ConfigMaps(namespace).Patch(w.t.Context(), configMapName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// settled returns when the controller has handled all events that came before
// the call, of namespaces and of ConfigMaps, between which there is no order: a
// new namespace comes after the former, the end of its ConfigMap after the latter.
func (w *world) settled() {
	w.t.Helper()
	namespace := w.namespace()
	first := w.published(namespace, "")
	w.delete(namespace, configMapName)
	w.published(namespace, first.UID)
}

// writes of the controller in a namespace.
func (w *world) writes(namespace string) (writes []apiproxy.Request) {
	for _, r := range w.Writes(configMaps.GroupResource()) {
		if r.Namespace == namespace {
			writes = append(writes, r)
		}
	}
	return writes
}

func TestAcceptance01_ANewNamespaceGetsTheCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	configMap := w.published(w.namespace(), "")
	if configMap.Annotations[descriptionAnnotation] != description || len(configMap.Annotations) != 1 ||
		len(configMap.Labels)+len(configMap.OwnerReferences)+len(configMap.Finalizers)+len(configMap.BinaryData) > 0 {
		t.Errorf("it has more, or less, than the description: %+v", configMap)
	}
}

func TestAcceptance02_ADeletedConfigMapIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	namespace := w.namespace()
	first := w.published(namespace, "")
	w.delete(namespace, configMapName)
	w.published(namespace, first.UID)
	w.create(namespace, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	w.delete(namespace, "other")
	w.settled()
	if writes := w.writes(namespace); len(writes) != 2 {
		t.Errorf("%d writes for two ConfigMaps: %+v", len(writes), writes)
	}
}

func TestAcceptance03_EditsAreRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	namespace := w.namespace()
	w.published(namespace, "")
	for i, patch := range []string{
		`{"data":{"x":"y"}}`,
		`{"data":{"ca.crt":"hello"}}`,
		`{"data":null}`,
		`{"data":{"x":"y"},"metadata":{"annotations":{"kubernetes.io/description":"mine","a":"b"},"labels":{"c":"d"}}}`,
	} {
		w.patch(namespace, patch)
		repaired := w.published(namespace, "")
		if writes := w.writes(namespace); len(writes) != i+2 {
			t.Errorf("%d writes after %d edits: %+v", len(writes), i+1, writes)
		}
		if repaired.Annotations[descriptionAnnotation] != description {
			t.Errorf("annotations %v", repaired.Annotations)
		}
		if i == 3 && (repaired.Annotations["a"] != "b" || repaired.Labels["c"] != "d") {
			t.Errorf("somebody's metadata has gone: %+v", repaired.ObjectMeta)
		}
	}
}

func TestAcceptance04_ADescriptionInOtherWordsIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	namespace := w.namespace()
	w.published(namespace, "")
	w.patch(namespace, `{"metadata":{"annotations":{"kubernetes.io/description":"mine"}}}`)
	w.settled()
	if writes := w.writes(namespace); len(writes) != 1 {
		t.Errorf("writes: %+v", writes)
	}
	w.patch(namespace, `{"metadata":{"annotations":null}}`)
	if got := w.published(namespace, "").Annotations[descriptionAnnotation]; got != description {
		t.Errorf("described as %q", got)
	}
}

func TestAcceptance05_ATerminatingNamespaceGetsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	namespace := w.namespace()
	w.published(namespace, "")
	w.Terminate(namespace)
	w.settled() // or else it may hear of the ConfigMap first, and try in vain
	w.delete(namespace, configMapName)
	w.settled()
	if writes := w.writes(namespace); len(writes) != 1 {
		t.Errorf("writes in a terminating namespace: %+v", writes)
	}
}

func TestAcceptance05_ARefusalInATerminatingNamespaceIsNotRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	namespace := w.namespace()
	w.published(namespace, "")

	// The cache takes the namespace for active.
	release := w.Proxy.HoldWatches(namespaces.GroupResource())
	w.Terminate(namespace)
	w.delete(namespace, configMapName)
	harness.Eventually(t, within, "attempt", func(context.Context) error {
		if writes := w.writes(namespace); len(writes) < 2 {
			return fmt.Errorf("%d writes", len(writes))
		}
		return nil
	})
	release()
	w.settled()
	writes := w.writes(namespace)
	if len(writes) != 2 || writes[1].Code != http.StatusForbidden {
		t.Errorf("writes: %+v", writes)
	}
	if status := controller.Work(); status.LastError != "" {
		t.Errorf("a refusal counts as an error: %s", status.LastError)
	}
}

func TestAcceptance06_WhatHappenedWhileStoppedIsMadeUpFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	first := w.namespace()
	configMap := w.published(first, "")
	kept := w.namespace()
	w.published(kept, "")
	controller.Stop()
	second := w.namespace()
	w.delete(first, configMapName)
	w.ca = certificates.New(t, "another", nil)
	w.mount = certificates.NewMount(t, certificates.Bundle(w.ca.CertPEM))
	controller.Reconfigure(section(w.mount))
	w.published(first, configMap.UID)
	w.published(second, "")
	w.published(kept, "")
}

func TestAcceptance07_SyncsAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	w.published(w.namespace(), "")
	harness.Eventually(t, within, "count of syncs", func(context.Context) error {
		families, err := controller.Metrics.Gather()
		if err != nil {
			return err
		}
		counted := map[string]bool{}
		for _, family := range families {
			for _, metric := range family.Metric {
				if labelled(metric, "code", "200") && metric.GetCounter().GetValue()+float64(metric.GetHistogram().GetSampleCount()) > 0 {
					counted[family.GetName()] = true
				}
			}
		}
		if !counted["root_ca_cert_publisher_sync_total"] || !counted["root_ca_cert_publisher_sync_duration_seconds"] {
			return fmt.Errorf("counted: %v", counted)
		}
		return nil
	})
}

func labelled(metric *dto.Metric, name, value string) bool {
	for _, label := range metric.Label {
		if label.GetName() == name && label.GetValue() == value {
			return true
		}
	}
	return false
}

func TestAcceptance08_TheCAOfTheProcessIsPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var err error
	if w.ca.CertPEM, err = os.ReadFile(controlplane.Shared(t).PKI.CAFile); err != nil {
		t.Fatal(err)
	}
	w.Start(Descriptor(), nil) // its kubeconfig holds the CA
	w.published(w.namespace(), "")
}

func TestAcceptance08_TheCAFileOfTheKubeconfigIsPublishedAndFollowed(t *testing.T) {
	t.Parallel()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	ca, err := os.ReadFile(cp.PKI.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	mount := certificates.NewMount(t, certificates.Bundle(ca))
	m := harness.StartManager(t, cp, harness.ManagerOptions{Kubeconfig: func(kubeconfig *clientcmdapi.Config) {
		for _, cluster := range kubeconfig.Clusters {
			cluster.CertificateAuthorityData, cluster.CertificateAuthority = nil, mount.Path("ca.crt")
		}
	}}, Descriptor())
	publishes := func(want []byte) {
		t.Helper()
		harness.Eventually(t, within, "CA of the file", func(ctx context.Context) error {
			configMap, err := m.Admin.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, configMapName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if configMap.Data[dataKey] != string(want) {
				return fmt.Errorf("it holds %v", configMap.Data)
			}
			return nil
		})
	}
	publishes(ca)
	both := append(bytes.Clone(ca), certificates.New(t, "next", nil).CertPEM...)
	mount.Write(t, certificates.Bundle(both))
	publishes(both)
}

func TestWithoutAnyCAItIsUnavailable(t *testing.T) {
	t.Parallel()
	descriptor := Descriptor()
	section := descriptor.Section.New()
	if reason := descriptor.Unavailable(section, nil); !strings.Contains(reason, "rootCAFile") {
		t.Errorf("reason %q does not name the setting", reason)
	}
	if reason := descriptor.Unavailable(section, []byte("a CA")); reason != "" {
		t.Errorf("unavailable with a CA: %s", reason)
	}
}

func TestANewCAReachesEveryNamespaceWithoutARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	all := []string{w.namespace(), w.namespace(), w.namespace()}
	for _, namespace := range all {
		w.published(namespace, "")
	}
	w.rotate()
	for _, namespace := range all {
		w.published(namespace, "")
		if writes := w.writes(namespace); len(writes) != 2 || writes[1].Verb != "update" {
			t.Errorf("writes for a new CA: %+v", writes)
		}
	}

	// What cannot be published is not, and everybody can see why.
	for _, bad := range [][]byte{nil, []byte("hello"), append(bytes.Clone(w.ca.CertPEM), w.ca.KeyPEM...)} {
		w.mount.Write(t, certificates.Bundle(bad))
		w.rejected(controller)
		w.settled()
		for _, namespace := range all {
			w.published(namespace, "")
		}
	}
	w.rotate()
	for _, namespace := range all {
		w.published(namespace, "")
	}
}

// rejected waits until /debug/controllers/NAME tells of a rejected file.
func (w *world) rejected(controller *harness.Instance) {
	w.t.Helper()
	harness.Eventually(w.t, within, "rejection", func(context.Context) error {
		if summary := controller.Summary(); !strings.Contains(summary, w.mount.Path("ca.crt")) || strings.Contains(summary, `"rejected":null`) {
			return fmt.Errorf("summary: %s", summary)
		}
		return nil
	})
}

func TestAStandbyTakesOverWithTheNewestCA(t *testing.T) {
	t.Parallel()
	label := rand.String(10)
	scope := apiproxy.Scope{NamespaceSelector: "test=" + label}
	ca := certificates.New(t, "root", nil)
	w := &world{
		Engine: harness.New(t, controlplane.Shared(t), harness.Options{Scope: scope, Standby: true}),
		t:      t, label: label, ca: ca, mount: certificates.NewMount(t, certificates.Bundle(ca.CertPEM)),
	}
	controller := w.start()
	namespace := w.namespace()
	w.rotate()
	w.Lead()
	controller.WaitReady()
	w.published(namespace, "")
	if writes := w.writes(namespace); len(writes) != 1 {
		t.Errorf("the CA from before was published first: %+v", writes)
	}
}

func TestAConfigMapOfSomebodyElseIsTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	release := w.Proxy.HoldWatches(namespaces.GroupResource())
	namespace := w.namespace()
	w.create(namespace, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMapName}, Data: map[string]string{"ca.crt": "wrong"}})
	release()
	w.published(namespace, "")
	if status := controller.Work(); status.LastError != "" {
		t.Errorf("a ConfigMap that exists counts as an error: %s", status.LastError)
	}
}

func TestAnImmutableConfigMapIsReportedAndNotRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	namespace := w.namespace()
	first := w.published(namespace, "")
	w.patch(namespace, `{"immutable":true}`)
	controller.CatchUp() // or else it may not know, and try in vain
	w.rotate()
	harness.Eventually(t, within, "event", func(ctx context.Context) error {
		events, err := w.Admin.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range events.Items {
			if events.Items[i].Reason == immutableReason && events.Items[i].InvolvedObject.Name == configMapName {
				return nil
			}
		}
		return fmt.Errorf("%d events, none of it", len(events.Items))
	})
	w.settled()
	if writes := w.writes(namespace); len(writes) != 1 {
		t.Errorf("writes to an immutable ConfigMap: %+v", writes)
	}
	if status := controller.Work(); status.LastError != "" {
		t.Errorf("last error: %s", status.LastError)
	}
	w.delete(namespace, configMapName)
	w.published(namespace, first.UID)
}
