package resourcequota_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/resourcequota"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const (
	// soon is how long the controller may take on a busy machine.
	soon = 2 * time.Minute
	// briefly is how long something is watched that must not happen.
	briefly = 2 * time.Second
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

// world is a namespace with a quota controller.
type world struct {
	t        *testing.T
	ns       string
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	engine   *harness.Engine
	instance *harness.Instance
}

// section of the controller with a period between recounts; 0 for none.
func section(period time.Duration) *schema.ResourceQuotaController {
	s, ok := schema.ResourceQuotaControllerSection().New().(*schema.ResourceQuotaController)
	if !ok {
		panic("the section has another type")
	}
	s.SyncPeriod.Duration = period
	return s
}

// newWorld in a namespace of its own, in which nothing runs yet.
func newWorld(t *testing.T) *world {
	t.Helper()
	return inWorld(t, controlplane.Shared(t), harness.Options{DiscoveryInterval: time.Second})
}

func inWorld(t *testing.T, cp *controlplane.ControlPlane, o harness.Options) *world {
	t.Helper()
	engine := harness.New(t, cp, o)
	made, err := dynamic.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ns: engine.Namespace, client: engine.Admin, dynamic: made, engine: engine}
	if w.ns == "" {
		w.ns = cp.Namespace(t)
	}
	return w
}

// another world in a namespace of its own, with the same controller.
func (w *world) another(t *testing.T, cp *controlplane.ControlPlane) *world {
	t.Helper()
	other := *w
	other.t, other.ns = t, cp.Namespace(t)
	return &other
}

// start the controller, and wait until it monitors all that is served.
func (w *world) start(period time.Duration) {
	w.t.Helper()
	w.instance = w.engine.Start(resourcequota.Descriptor(), section(period))
	w.ready()
}

func (w *world) ready() {
	w.t.Helper()
	harness.Eventually(w.t, soon, "synced monitors", func(context.Context) error {
		if s := w.summary(); s.Monitors == 0 || len(s.Unsynced) > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// running is a new world whose controller recounts only when it starts.
func running(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.start(0)
	return w
}

type summary struct {
	Quotas, Monitors int
	Unsynced         []string
}

// summary is what the controller says of itself.
func (w *world) summary() summary {
	w.t.Helper()
	var s summary
	if err := json.Unmarshal([]byte(w.instance.Summary()), &s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// amounts by name.
type amounts map[corev1.ResourceName]string

func (a amounts) list() corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, quantity := range a {
		list[name] = resource.MustParse(quantity)
	}
	return list
}

type quotaOption func(*corev1.ResourceQuota)

func scoped(scopes ...corev1.ResourceQuotaScope) quotaOption {
	return func(q *corev1.ResourceQuota) { q.Spec.Scopes = scopes }
}

func selecting(scope corev1.ResourceQuotaScope, operator corev1.ScopeSelectorOperator, values ...string) quotaOption {
	return func(q *corev1.ResourceQuota) {
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: scope, Operator: operator, Values: values},
		}}
	}
}

// create a quota without waiting for its status.
func (w *world) create(name string, hard amounts, options ...quotaOption) {
	w.t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard.list()}}
	for _, o := range options {
		o(q)
	}
	if _, err := w.client.CoreV1().ResourceQuotas(w.ns).Create(w.t.Context(), q, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// quota that is created and counted.
func (w *world) quota(name string, hard amounts, options ...quotaOption) {
	w.t.Helper()
	w.create(name, hard, options...)
	w.counted(name)
}

// counted waits until the limits of a quota are in force.
func (w *world) counted(name string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "status of quota "+name, func(ctx context.Context) error {
		q, err := w.client.CoreV1().ResourceQuotas(w.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !quota.Equals(q.Spec.Hard, q.Status.Hard) || len(q.Status.Used) != len(q.Status.Hard) {
			return fmt.Errorf("status %+v", q.Status)
		}
		return nil
	})
}

func (w *world) get(name string) *corev1.ResourceQuota {
	w.t.Helper()
	q, err := w.client.CoreV1().ResourceQuotas(w.ns).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return q
}

// change a quota's spec.
func (w *world) change(name string, change func(*corev1.ResourceQuota)) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "change of quota "+name, func(ctx context.Context) error {
		q, err := w.client.CoreV1().ResourceQuotas(w.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(q)
		_, err = w.client.CoreV1().ResourceQuotas(w.ns).Update(ctx, q, metav1.UpdateOptions{})
		return err
	})
}

// falsify what a quota says is used.
func (w *world) falsify(name string, used amounts) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "other status of quota "+name, func(ctx context.Context) error {
		q, err := w.client.CoreV1().ResourceQuotas(w.ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		q.Status.Used = used.list()
		_, err = w.client.CoreV1().ResourceQuotas(w.ns).UpdateStatus(ctx, q, metav1.UpdateOptions{})
		return err
	})
}

// shows tells what is wrong with the used amounts of a quota.
func (w *world) shows(ctx context.Context, name string, want amounts) error {
	q, err := w.client.CoreV1().ResourceQuotas(w.ns).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for resourceName, quantity := range want.list() {
		used, ok := q.Status.Used[resourceName]
		if !ok || used.Cmp(quantity) != 0 {
			return fmt.Errorf("used %s: %s (%v), want %s", resourceName, used.String(), ok, quantity.String())
		}
	}
	return nil
}

// used amounts of a quota come to be want, which may leave names out.
func (w *world) used(name string, want amounts) {
	w.t.Helper()
	harness.Eventually(w.t, soon, fmt.Sprintf("use of quota %s: %v", name, want), func(ctx context.Context) error {
		return w.shows(ctx, name, want)
	})
}

// remains tells what is wrong with the used amounts of a quota within a time.
func (w *world) remains(ctx context.Context, name string, want amounts) error {
	tick := time.NewTicker(briefly / 20)
	defer tick.Stop()
	for end := time.Now().Add(briefly); time.Now().Before(end); {
		if err := w.shows(ctx, name, want); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

type podOption func(*corev1.Pod)

func requesting(requests amounts) podOption {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = requests.list() }
}

func limited(limits amounts) podOption {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = limits.list() }
}

func deadline(seconds int64) podOption {
	return func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To(seconds) }
}

func newPod(name string, options ...podOption) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app:1"}}},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

// pod is created; it never runs.
func (w *world) pod(name string, options ...podOption) *corev1.Pod {
	w.t.Helper()
	p, err := w.client.CoreV1().Pods(w.ns).Create(w.t.Context(), newPod(name, options...), metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// deletePod at once; nothing keeps a pod without a node.
func (w *world) deletePod(name string) {
	w.t.Helper()
	if err := w.client.CoreV1().Pods(w.ns).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) setPhase(pod *corev1.Pod, phase corev1.PodPhase) {
	w.t.Helper()
	pod = pod.DeepCopy()
	pod.Status.Phase = phase
	if _, err := w.client.CoreV1().Pods(w.ns).UpdateStatus(w.t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) configMap(name string) {
	w.t.Helper()
	_, err := w.client.CoreV1().ConfigMaps(w.ns).Create(w.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteConfigMap(name string) {
	w.t.Helper()
	if err := w.client.CoreV1().ConfigMaps(w.ns).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// ownControlPlane for a test that needs an API server with other flags, or
// whose resources would be in the way of others.
func ownControlPlane(t *testing.T, o controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}

// refused tells whether a create was refused by quota.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsConflict(err) }
