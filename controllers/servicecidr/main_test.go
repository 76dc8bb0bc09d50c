package servicecidr_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/servicecidr"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// defaultRange is that of the ServiceCIDR that the API server makes, with five
// addresses for Services beside its own.
const defaultRange = "192.168.0.0/29"

var options = controlplane.Options{APIServerArgs: []string{"--service-cluster-ip-range=" + defaultRange}}

func TestMain(m *testing.M) { os.Exit(harness.Main(m, options)) }

const (
	// soon is how long the controller may take.
	soon = 2 * time.Minute
	// aWhile is how long what must not happen is watched for.
	aWhile = 500 * time.Millisecond

	finalizer   = "networking.k8s.io/service-cidr-finalizer"
	readyText   = "Kubernetes Service CIDR is ready"
	heldText    = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"
	namedByTest = "test"
)

var (
	serviceCIDRs = networkingv1.SchemeGroupVersion.WithResource("servicecidrs").GroupResource()
	ipAddresses  = networkingv1.SchemeGroupVersion.WithResource("ipaddresses").GroupResource()
)

// world is an engine whose controller sees the ServiceCIDRs of one test only.
type world struct {
	*harness.Engine
	t          *testing.T
	controller *harness.Instance
	// clock of the controller, which goes on only while gone waits; nil for the real one.
	clock     *clocktesting.FakeClock
	label     string
	namespace string
	// net is the second octet of ranges that no other test has; the next one is free too.
	net int
}

var nets atomic.Int32

// newWorld in which grace periods last until the test lets them end: the
// watches of ServiceCIDRs and of addresses have no order.
func newWorld(t *testing.T, alsoLabelled ...string) *world {
	t.Helper()
	fake := clocktesting.NewFakeClock(time.Now())
	w := makeWorld(t, fake, alsoLabelled...)
	w.clock = fake
	return w
}

func makeWorld(t *testing.T, c clock.WithTicker, alsoLabelled ...string) *world {
	t.Helper()
	cp := controlplane.Shared(t)
	label := rand.String(8)
	selector := namedByTest + " in (" + label
	for _, other := range alsoLabelled {
		selector += "," + other
	}
	engine := harness.New(t, cp, harness.Options{
		Scope: apiproxy.Scope{Selected: serviceCIDRs, Selector: selector + ")"},
		Clock: c,
	})
	w := &world{Engine: engine, t: t, label: label, namespace: cp.Namespace(t), net: 2 * int(nets.Add(1))}
	w.controller = engine.Start(servicecidr.Descriptor(), nil)
	return w
}

// v4 is a range of the test, such as 10.NET.1.0/24 for "1.0/24".
func (w *world) v4(rest string) string { return fmt.Sprintf("10.%d.%s", w.net, rest) }

// v6 is a range, or an address, of the test.
func (w *world) v6(rest string) string { return fmt.Sprintf("fd00:%x:%s", w.net, rest) }

// name of a ServiceCIDR, which has no namespace that would keep tests apart.
func (w *world) name(short string) string { return w.label + "-" + short }

func (w *world) create(short string, ranges ...string) {
	w.t.Helper()
	_, err := w.Admin.NetworkingV1().ServiceCIDRs().Create(w.t.Context(), &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: w.name(short), Labels: map[string]string{namedByTest: w.label}},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: ranges},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(ctx context.Context, short string) (*networkingv1.ServiceCIDR, error) {
	return w.Admin.NetworkingV1().ServiceCIDRs().Get(ctx, w.name(short), metav1.GetOptions{})
}

func (w *world) delete(short string) {
	w.t.Helper()
	if err := w.Admin.NetworkingV1().ServiceCIDRs().Delete(w.t.Context(), w.name(short), metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) patch(short, patch string, subresources ...string) {
	w.t.Helper()
	_, err := w.Admin.NetworkingV1().ServiceCIDRs().Patch(w.t.Context(), w.name(short), types.MergePatchType, []byte(patch),
		metav1.PatchOptions{}, subresources...)
	if err != nil {
		w.t.Fatal(err)
	}
}

// says returns an error unless a ServiceCIDR has the finalizer and says that it is ready, or held.
func says(cidr *networkingv1.ServiceCIDR, ready bool) error {
	status, reason, message := metav1.ConditionTrue, "", readyText
	if !ready {
		status, reason, message = metav1.ConditionFalse, "Terminating", heldText
	}
	if !slices.Contains(cidr.Finalizers, finalizer) {
		return fmt.Errorf("finalizers %v", cidr.Finalizers)
	}
	condition := meta.FindStatusCondition(cidr.Status.Conditions, "Ready")
	if condition == nil || condition.Status != status || condition.Reason != reason || condition.Message != message {
		return fmt.Errorf("condition %+v", condition)
	}
	return nil
}

func (w *world) ready(shorts ...string) {
	w.t.Helper()
	w.waitFor(true, shorts)
}

// held waits until ServiceCIDRs that are being deleted say so.
func (w *world) held(shorts ...string) {
	w.t.Helper()
	w.waitFor(false, shorts)
}

func (w *world) waitFor(ready bool, shorts []string) {
	w.t.Helper()
	for _, short := range shorts {
		harness.Eventually(w.t, soon, fmt.Sprintf("condition of %s, ready %t", short, ready), func(ctx context.Context) error {
			w.step(time.Millisecond) // for keys that wait until the cache has seen what was written
			cidr, err := w.get(ctx, short)
			if err != nil {
				return err
			}
			return says(cidr, ready)
		})
	}
}

func (w *world) step(d time.Duration) {
	if w.clock != nil {
		w.clock.Step(d)
	}
}

// stays fails the test when a ServiceCIDR goes, whose grace period is over.
func (w *world) stays(short string) {
	w.t.Helper()
	w.step(time.Hour)
	harness.Throughout(w.t, aWhile, "life of "+short, func(ctx context.Context) error {
		_, err := w.get(ctx, short)
		return err
	})
}

func (w *world) gone(shorts ...string) {
	w.t.Helper()
	for _, short := range shorts {
		harness.Eventually(w.t, soon, "end of "+short, func(ctx context.Context) error {
			w.step(time.Second)
			return w.isGone(ctx, short)
		})
	}
}

func (w *world) isGone(ctx context.Context, short string) error {
	cidr, err := w.get(ctx, short)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("it is there: %+v", cidr.Status.Conditions)
	}
	return err
}

// service with an address, which the controller knows: when no grace period is
// left for it to come, a range that holds it would go.
func (w *world) service(name, address string) {
	w.t.Helper()
	w.makeService(name, address)
	w.controller.CatchUp()
}

// makeService with an address, once the API server knows the range that contains it.
func (w *world) makeService(name, address string) {
	w.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{ClusterIP: address, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	harness.Eventually(w.t, soon, "service with address "+address, func(ctx context.Context) error {
		_, err := w.Admin.CoreV1().Services(w.namespace).Create(ctx, service, metav1.CreateOptions{})
		return err
	})
}

func (w *world) deleteService(name string) {
	w.t.Helper()
	if err := w.Admin.CoreV1().Services(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// address that somebody manages, which the controller knows. The API server lets one go that it manages
// itself and that belongs to no Service, but not in the first minute.
func (w *world) address(address, manager string) {
	w.t.Helper()
	_, err := w.Admin.NetworkingV1().IPAddresses().Create(w.t.Context(), &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: address, Labels: map[string]string{networkingv1.LabelManagedBy: manager}},
		Spec: networkingv1.IPAddressSpec{
			ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: w.namespace, Name: "none"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.controller.CatchUp()
}

func (w *world) deleteAddress(address string) {
	w.t.Helper()
	if err := w.Admin.NetworkingV1().IPAddresses().Delete(w.t.Context(), address, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// settled waits until the controller knows all there is and is done with it.
func (w *world) settled() {
	w.t.Helper()
	w.controller.CatchUp()
	harness.Eventually(w.t, soon, "idle controller", func(context.Context) error {
		w.step(time.Millisecond)
		if status := w.controller.Work(); status.Depth+status.Busy > 0 {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
}

// writes of a ServiceCIDR.
func (w *world) writes(short string) (writes []apiproxy.Request) {
	for _, r := range w.Writes(serviceCIDRs) {
		if r.Name == w.name(short) {
			writes = append(writes, r)
		}
	}
	return writes
}

// event on a ServiceCIDR.
func (w *world) event(ctx context.Context, short string) (*corev1.Event, error) {
	list, err := w.Admin.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.name=" + w.name(short),
	})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, errors.New("there is no event")
	}
	return &list.Items[0], nil
}
