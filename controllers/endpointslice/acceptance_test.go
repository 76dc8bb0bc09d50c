package endpointslice_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/endpointslice"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	fixture "github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

func sorted(all []string) []string { return slices.Sorted(slices.Values(all)) }

func TestAcceptance01_AServiceWithoutPodsHasAnEmptySlice(t *testing.T) {
	t.Parallel()
	c := start(t)
	service := c.MakeService("web", fixture.Families(v1.IPv4Protocol, v1.IPv6Protocol))
	all := c.await("web", "the slices", lists("", ""))
	for i := range all {
		slice := &all[i]
		owner := metav1.OwnerReference{
			APIVersion: "v1", Kind: "Service", Name: "web", UID: service.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
		}
		if len(slice.OwnerReferences) != 1 || !equal(slice.OwnerReferences[0], owner) || !strings.HasPrefix(slice.Name, "web-") ||
			len(slice.Ports) != 0 || slice.Labels[discovery.LabelServiceName] != "web" || slice.Labels[discovery.LabelManagedBy] != manager {
			t.Errorf("slice %+v", slice)
		}
	}
	if all[0].AddressType != discovery.AddressTypeIPv4 || all[1].AddressType != discovery.AddressTypeIPv6 {
		t.Errorf("families %s and %s", all[0].AddressType, all[1].AddressType)
	}
}

func equal(a, b metav1.OwnerReference) bool { return a.String() == b.String() }

func TestAcceptance02_AReadyPodIsListed(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	empty := c.await("web", "the placeholder", lists(""))[0]
	pod := c.MakePod("p1", "web", []string{"10.1.0.1"})
	slice := c.await("web", "the endpoint", lists("[10.1.0.1]RS"))[0]
	if slice.Name != empty.Name {
		t.Errorf("slice %s instead of %s", slice.Name, empty.Name)
	}
	e := slice.Endpoints[0]
	if *e.NodeName != c.Node("n1") || *e.Zone != "a" || e.TargetRef.UID != pod.UID || e.TargetRef.Name != "p1" || e.Hostname != nil {
		t.Errorf("endpoint %+v", e)
	}
	if len(slice.Ports) != 1 || *slice.Ports[0].Name != "http" || *slice.Ports[0].Port != 8080 || *slice.Ports[0].Protocol != v1.ProtocolTCP {
		t.Errorf("ports %+v", slice.Ports)
	}
	if slice.Annotations[v1.EndpointsLastChangeTriggerTime] == "" {
		t.Errorf("annotations %v", slice.Annotations)
	}
}

func TestAcceptance03_ConditionsFollowThePod(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		publish                       bool
		notReady, terminating, listed string
	}{
		"ready pods only": {false, "[10.1.0.1]", "[10.1.0.1]ST", "[10.1.0.1]RS"},
		"all pods":        {true, "[10.1.0.1]R", "[10.1.0.1]RST", "[10.1.0.1]RS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			c.MakeService("web", func(s *v1.Service) { s.Spec.PublishNotReadyAddresses = test.publish })
			c.MakePod("p1", "web", []string{"10.1.0.1"})
			c.await("web", "the ready endpoint", lists(test.listed))
			c.SetPodStatus("p1", fixture.Ready(false))
			c.await("web", "the endpoint that is not ready", lists(test.notReady))
			c.SetPodStatus("p1", fixture.Ready(true))
			c.await("web", "the ready endpoint", lists(test.listed))
			c.DeletePod("p1")
			c.await("web", "the terminating endpoint", lists(test.terminating))
			c.RemovePod("p1")
			c.await("web", "no endpoint", lists(""))
		})
	}
}

// A pod that has finished is no endpoint, whatever its readiness.
func TestAcceptance04_FinishedPodsAreNotListed(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	for i, finish := range []func(*v1.Pod){
		func(pod *v1.Pod) { fixture.Ready(false)(pod); fixture.Phase(v1.PodSucceeded)(pod) },
		fixture.Phase(v1.PodSucceeded), // still ready
	} {
		name := fmt.Sprint("p", i)
		c.MakePod(name, "web", []string{"10.1.0.1"})
		c.await("web", "the endpoint", lists("[10.1.0.1]RS"))
		c.SetPodStatus(name, finish)
		c.await("web", "no endpoint", lists(""))
	}
	c.MakePod("going", "web", []string{"10.1.0.1"})
	c.DeletePod("going")
	c.await("web", "the terminating endpoint", lists("[10.1.0.1]ST"))
	c.SetPodStatus("going", fixture.Phase(v1.PodSucceeded))
	c.await("web", "no endpoint", lists(""))
}

func TestAcceptance05_APodOnAnUnknownNodeWaitsForIt(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.MakeService("all", func(s *v1.Service) {
		s.Spec.PublishNotReadyAddresses = true
		s.Spec.Selector = map[string]string{"app": "web"}
	})
	c.MakePod("here", "web", []string{"10.1.0.1"})
	c.MakePod("there", "web", []string{"10.1.0.2"}, c.OnNode("ghost"))
	c.await("web", "the pod on a node", lists("[10.1.0.1]RS"))
	all := c.await("all", "both pods", lists("[10.1.0.1]RS [10.1.0.2]RS"))
	for i := range all[0].Endpoints {
		if e := &all[0].Endpoints[i]; e.Addresses[0] == "10.1.0.2" && e.Zone != nil {
			t.Errorf("zone %s", *e.Zone)
		}
	}
	c.AwaitEvent("web", "FailedToUpdateEndpointSlices", fmt.Sprintf(
		"Warning %s Error updating Endpoint Slices for Service %s/web: skipping Pod there for Service %[2]s/web: Node %s Not Found",
		component, c.Namespace, c.Node("ghost")))
	c.MakeNode("ghost", "b")
	c.await("web", "both pods", lists("[10.1.0.1]RS [10.1.0.2]RS"))
	c.await("all", "the zone", also(lists("[10.1.0.1]RS [10.1.0.2]RS"), func(slice *discovery.EndpointSlice) error {
		for i := range slice.Endpoints {
			if slice.Endpoints[i].Zone == nil {
				return errors.New("an endpoint has no zone")
			}
		}
		return nil
	}))
}

// The event of the node brings back the Services whose pods wait for it, long
// before their back-off is over; and so does a new zone.
func TestNodesBringBackWhatWaitsForThem(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.MakePod("there", "web", []string{"10.1.0.2"}, c.OnNode("ghost"))
	for range 5 { // 1 + 2 + 4 + 8 s of back-off would follow
		failures := c.metric("endpoint_slice_controller_syncs", map[string]string{"result": "error"})
		c.ChangeService("web", annotation("touched", time.Now().String()))
		harness.Eventually(t, fixture.Soon, "a failure", func(context.Context) error {
			if c.metric("endpoint_slice_controller_syncs", map[string]string{"result": "error"}) == failures {
				return errors.New("none so far")
			}
			return nil
		})
	}
	c.MakeNode("ghost", "")
	c.await("web", "the pod", lists("[10.1.0.2]RS"))
	c.Idle(c.controller)
	c.ChangeNode("ghost", func(node *v1.Node) { node.Labels[v1.LabelTopologyZone] = "b" })
	c.await("web", "the zone", also(lists("[10.1.0.2]RS"), func(slice *discovery.EndpointSlice) error {
		if zone := ptr.Deref(slice.Endpoints[0].Zone, ""); zone != "b" {
			return fmt.Errorf("zone %q", zone)
		}
		return nil
	}))
}

func TestAcceptance06_SlicesAreFilledUp(t *testing.T) {
	t.Parallel()
	c := start(t)
	const pods = 250
	for i := range pods {
		c.MakePod(fmt.Sprint("p", i), "web", ips(i))
	}
	c.controller.CatchUp() // how slices are filled depends on how many pods are known at a time
	c.MakeService("web")
	all := c.await("web", "all endpoints", total(pods, 3, 100))
	var sizes []int
	for i := range all {
		sizes = append(sizes, len(all[i].Endpoints))
	}
	if slices.Sort(sizes); !slices.Equal(sizes, []int{50, 100, 100}) {
		t.Errorf("sizes %v", sizes)
	}
	for i := 0; i < 240; i += 4 {
		c.RemovePod(fmt.Sprint("p", i))
	}
	for i := range 10 {
		c.MakePod(fmt.Sprint("more", i), "web", ips(pods+i))
	}
	c.await("web", "the endpoints that are left", total(200, 3, 100))
	harness.Eventually(t, fixture.Soon, "the metric", func(context.Context) error {
		if got := c.metric("endpoint_slice_controller_endpoints_desired", nil); got != 200 {
			return fmt.Errorf("%v endpoints desired", got)
		}
		return nil
	})
}

func TestAcceptance07_MaxEndpointsPerSlice(t *testing.T) {
	t.Parallel()
	c := start(t, func(s *schema.EndpointSliceController) { s.MaxEndpointsPerSlice = 2 })
	for i := range 5 {
		c.MakePod(fmt.Sprint("p", i), "web", ips(i))
	}
	c.controller.CatchUp()
	c.MakeService("web")
	c.await("web", "three slices", func(all []discovery.EndpointSlice) error {
		if len(all) != 3 {
			return errors.New("want 3")
		}
		return total(5, 3, 2)(all)
	})
	// A new limit is heeded without a restart, and re-cuts nothing.
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "peace", func() {
		c.controller.ApplyLive(section(func(s *schema.EndpointSliceController) { s.MaxEndpointsPerSlice = 4 }))
		harness.Eventually(t, fixture.Soon, "the metric", func(context.Context) error {
			actual, desired := c.metric("endpoint_slice_controller_num_endpoint_slices", nil), c.metric("endpoint_slice_controller_desired_endpoint_slices", nil)
			if actual != 3 || desired != 2 {
				return fmt.Errorf("%v slices, %v desired", actual, desired)
			}
			return nil
		})
	})
	for i := range 3 {
		c.MakePod(fmt.Sprint("more", i), "web", ips(10+i))
	}
	c.await("web", "the new pods", total(8, 4, 4))
}

func TestAcceptance08_DualStackServicesHaveSlicesOfBothFamilies(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", fixture.Families(v1.IPv4Protocol, v1.IPv6Protocol))
	c.MakePod("p1", "web", []string{"10.1.0.1", "fd00::1"})
	all := c.await("web", "both families", lists("[10.1.0.1]RS", "[fd00::1]RS"))
	if all[0].AddressType != discovery.AddressTypeIPv4 || all[1].AddressType != discovery.AddressTypeIPv6 {
		t.Errorf("families %s and %s", all[0].AddressType, all[1].AddressType)
	}
	c.ChangeService("web", func(s *v1.Service) {
		s.Spec.IPFamilyPolicy = ptr.To(v1.IPFamilyPolicySingleStack)
		s.Spec.IPFamilies = s.Spec.IPFamilies[:1]
		s.Spec.ClusterIPs = s.Spec.ClusterIPs[:1]
	})
	c.await("web", "one family", lists("[10.1.0.1]RS"))
}

func TestAcceptance09_PortsMakeSlices(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", func(s *v1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("web") })
	c.MakePod("p1", "web", []string{"10.1.0.1"}, fixture.Port("web", 8080))
	c.MakePod("p2", "web", []string{"10.1.0.2"}, fixture.Port("web", 9090))
	c.await("web", "a slice for each port", also(lists("[10.1.0.1]RS", "[10.1.0.2]RS"), func(slice *discovery.EndpointSlice) error {
		want := map[string]int32{"10.1.0.1": 8080, "10.1.0.2": 9090}[slice.Endpoints[0].Addresses[0]]
		if len(slice.Ports) != 1 || *slice.Ports[0].Port != want {
			return fmt.Errorf("ports %+v, want %d", slice.Ports, want)
		}
		return nil
	}))
	c.MakeService("headless", fixture.Headless, func(s *v1.Service) { s.Spec.Ports = nil })
	c.MakePod("p3", "headless", []string{"10.1.0.3"}, func(pod *v1.Pod) { pod.Spec.Hostname, pod.Spec.Subdomain = "db-0", "headless" })
	c.await("headless", "a slice without ports", also(lists("[10.1.0.3]RS"), func(slice *discovery.EndpointSlice) error {
		label, ok := slice.Labels[v1.IsHeadlessService]
		if len(slice.Ports) > 0 || !ok || label != "" || ptr.Deref(slice.Endpoints[0].Hostname, "") != "db-0" {
			return fmt.Errorf("slice %+v", slice)
		}
		return nil
	}))
}

func TestAcceptance10_LabelsFollowTheService(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", func(s *v1.Service) { s.Labels = map[string]string{"x": "y"} })
	labelled := func(want map[string]string) func([]discovery.EndpointSlice) error {
		return also(lists(""), func(slice *discovery.EndpointSlice) error {
			got := maps.Clone(slice.Labels)
			delete(got, discovery.LabelServiceName)
			delete(got, discovery.LabelManagedBy)
			if !maps.Equal(got, want) {
				return fmt.Errorf("labels %v, want %v", got, want)
			}
			return nil
		})
	}
	c.await("web", "the label", labelled(map[string]string{"x": "y"}))
	c.ChangeService("web", func(s *v1.Service) { s.Labels = map[string]string{"z": "w", discovery.LabelManagedBy: "x"} })
	c.await("web", "the new label", labelled(map[string]string{"z": "w"}))
	c.NoWrites(fixture.Slices, "peace")
}

func TestAcceptance11_EditsOfSlicesAreReverted(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	slice := c.await("web", "the endpoint", lists("[10.1.0.1]RS"))[0]

	c.deleteSlice(slice.Name)
	slice = c.await("web", "another slice", also(lists("[10.1.0.1]RS"), func(s *discovery.EndpointSlice) error {
		if s.Name == slice.Name {
			return errors.New("it is the old one")
		}
		return nil
	}))[0]
	c.PatchSlice(slice.Name, `{"endpoints":[{"addresses":["10.9.9.9"]}]}`)
	c.await("web", "the right endpoint", lists("[10.1.0.1]RS"))
	c.PatchSlice(slice.Name, `{"metadata":{"ownerReferences":null}}`)
	c.await("web", "a slice with an owner", also(lists("[10.1.0.1]RS"), func(s *discovery.EndpointSlice) error {
		if len(s.OwnerReferences) != 1 {
			return errors.New("it has none")
		}
		return nil
	}))
}

// A slice that is given to somebody else, or held by a finalizer, is replaced
// and then left alone.
func TestAcceptance11_SlicesThatAreTakenAwayAreReplaced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patch  string
		remove bool
	}{
		"other manager":      {patch: `{"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":null}}}`},
		"other service":      {patch: `{"metadata":{"labels":{"kubernetes.io/service-name":"elsewhere"}}}`},
		"held while it goes": {patch: `{"metadata":{"finalizers":["example.com/hold"]}}`, remove: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			c.MakeService("web")
			c.MakePod("p1", "web", []string{"10.1.0.1"})
			old := c.await("web", "the endpoint", lists("[10.1.0.1]RS"))[0]
			c.PatchSlice(old.Name, test.patch)
			if test.remove {
				c.deleteSlice(old.Name)
			}
			c.await("web", "another slice", func(all []discovery.EndpointSlice) error {
				all = slices.DeleteFunc(all, func(s discovery.EndpointSlice) bool { return s.Name == old.Name })
				return lists("[10.1.0.1]RS")(all)
			})
			before, err := c.slice(t.Context(), old.Name)
			if err != nil {
				t.Fatal(err)
			}
			c.SetPodStatus("p1", fixture.Ready(false))
			c.await("web", "the change of the pod", func(all []discovery.EndpointSlice) error {
				all = slices.DeleteFunc(all, func(s discovery.EndpointSlice) bool { return s.Name == old.Name })
				return lists("[10.1.0.1]")(all)
			})
			after, err := c.slice(t.Context(), old.Name)
			if err != nil || after.ResourceVersion != before.ResourceVersion {
				t.Errorf("the slice was written: %v, %v", after, err)
			}
			if errs := c.metric("endpoint_slice_controller_syncs", map[string]string{"result": "error"}); errs > 0 {
				t.Errorf("%v failures", errs)
			}
		})
	}
}

func TestAcceptance12_SlicesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := start(t)
	mine := c.makeSlice(&discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{
			discovery.LabelServiceName: "web", discovery.LabelManagedBy: "me",
		}},
		AddressType: discovery.AddressTypeIPv4,
		Endpoints:   []discovery.Endpoint{{Addresses: []string{"10.7.7.7"}}},
	})
	c.MakeService("web")
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	c.await("web", "the endpoint", lists("[10.1.0.1]RS"))
	after, err := c.slice(t.Context(), mine.Name)
	if err != nil || after.ResourceVersion != mine.ResourceVersion {
		t.Errorf("the slice was written: %v, %v", after, err)
	}
}

func TestAcceptance13_ANamesakeAdoptsNothing(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	old := c.await("web", "the endpoint", lists("[10.1.0.1]RS"))[0]
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "peace", func() {
		c.DeleteService("web")
		c.controller.CatchUp() // or the pod may be known to be gone before the service
		c.RemovePod("p1")
	})
	if _, err := c.slice(t.Context(), old.Name); err != nil {
		t.Errorf("the slice of a service that is gone is the garbage collector's: %v", err)
	}
	service := c.MakeService("web")
	c.await("web", "the slice of the new service", also(lists(""), func(slice *discovery.EndpointSlice) error {
		if slice.Name == old.Name || len(slice.OwnerReferences) != 1 || slice.OwnerReferences[0].UID != service.UID {
			return errors.New("it is the old one's")
		}
		return nil
	}))
}

func TestAcceptance14_HintsByShareOfTheZones(t *testing.T) {
	t.Parallel()
	c := start(t)
	for i := range 4 {
		c.MakePod(fmt.Sprint("p", i), "web", ips(i), c.OnNode(fmt.Sprint("n", 1+i%2)))
	}
	c.controller.CatchUp() // with some of them there may be no hints for a moment
	c.MakeService("web", annotation(v1.AnnotationTopologyMode, "Auto"))
	c.await("web", "hints of the own zone", also(total(4, 1, 100), func(slice *discovery.EndpointSlice) error {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.Hints == nil || len(e.Hints.ForZones) != 1 || e.Hints.ForZones[0].Name != *e.Zone {
				return fmt.Errorf("hints %+v of an endpoint in %s", e.Hints, *e.Zone)
			}
		}
		return nil
	}))
	c.AwaitEvent("web", "TopologyAwareHintsEnabled",
		"Normal "+component+" Topology Aware Hints has been enabled, addressType: IPv4")

	// A new life finds the hints as they should be, and says nothing again.
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "peace", c.controller.Restart)
	events, err := c.Admin.CoreV1().Events(c.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=TopologyAwareHintsEnabled"})
	if err != nil || len(events.Items) != 1 || events.Items[0].Count > 1 {
		t.Errorf("events %+v, %v", events.Items, err)
	}

	for i := 1; i < 4; i++ {
		c.RemovePod(fmt.Sprint("p", i))
	}
	c.await("web", "no hints", both(total(1, 1, 100), hinted(map[string]int{})))
	c.AwaitEvent("web", "TopologyAwareHintsDisabled",
		"Warning "+component+" Insufficient number of endpoints (1 endpoints, 2 zones), addressType: IPv4")
}

func TestAcceptance15_HintsFollowTheNodes(t *testing.T) {
	t.Parallel()
	c := start(t)
	for i, node := range []string{"n1", "n1", "n1", "n2"} {
		c.MakePod(fmt.Sprint("p", i), "web", ips(i), c.OnNode(node))
	}
	c.MakeService("web", annotation(v1.AnnotationTopologyMode, "auto"))
	shared := both(total(4, 1, 100), hinted(map[string]int{"a": 2, "b": 2}))
	c.await("web", "two hints for each zone", shared)
	c.ChangeNode("n2", fixture.NodeReady(v1.ConditionFalse))
	c.await("web", "no hints", both(total(4, 1, 100), hinted(map[string]int{})))
	c.AwaitEvent("web", "TopologyAwareHintsDisabled", "Warning "+component+
		" Insufficient Node information: allocatable CPU or zone not specified on one or more nodes, addressType: IPv4")
	c.ChangeNode("n2", fixture.NodeReady(v1.ConditionTrue))
	c.await("web", "the hints without any event of a pod or service", shared)
}

// Hints that the shares of the zones do not allow are given when they come to allow
// them, though there are as many zones as before.
func TestHintsFollowTheSharesOfTheZones(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeNode("n3", "c")
	allocatable := func(cpu string) func(*v1.Node) {
		return func(node *v1.Node) {
			node.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
		}
	}
	for node, cpu := range map[string]string{"n1": "16", "n2": "1", "n3": "1"} {
		c.ChangeNode(node, allocatable(cpu))
	}
	for i := range 3 {
		c.MakePod(fmt.Sprint("p", i), "web", ips(i), c.OnNode(fmt.Sprint("n", 1+i)))
	}
	c.Idle(c.controller)
	c.MakeService("web", annotation(v1.AnnotationTopologyMode, "Auto"))
	c.await("web", "no hints", both(total(3, 1, 100), hinted(map[string]int{})))
	c.AwaitEvent("web", "TopologyAwareHintsDisabled", "Warning "+component+" Unable to allocate minimum required endpoints "+
		"to each zone without exceeding overload threshold (3 endpoints, 3 zones), addressType: IPv4")
	for _, node := range []string{"n1", "n2", "n3"} {
		c.ChangeNode(node, allocatable("4"))
	}
	c.await("web", "a hint for each zone", both(total(3, 1, 100), hinted(map[string]int{"a": 1, "b": 1, "c": 1})))
}

func TestAcceptance16_TrafficDistribution(t *testing.T) {
	t.Parallel()
	c := start(t)
	for i := range 4 {
		c.MakePod(fmt.Sprint("p", i), "web", ips(i), c.OnNode(fmt.Sprint("n", 1+i%2)))
	}
	c.MakeService("web", traffic(v1.ServiceTrafficDistributionPreferClose))
	nodes := func(want bool) func(*discovery.EndpointSlice) error {
		return func(slice *discovery.EndpointSlice) error {
			for i := range slice.Endpoints {
				e := &slice.Endpoints[i]
				if e.Hints == nil || e.Hints.ForZones[0].Name != *e.Zone || len(e.Hints.ForNodes) > 0 != want ||
					want && e.Hints.ForNodes[0].Name != *e.NodeName {
					return fmt.Errorf("hints %+v of an endpoint in %s", e.Hints, *e.Zone)
				}
			}
			return nil
		}
	}
	c.await("web", "the own zone", also(total(4, 1, 100), nodes(false)))
	harness.Eventually(t, fixture.Soon, "the metric", func(context.Context) error {
		labels := map[string]string{"traffic_distribution": "PreferClose"}
		if got := c.metric("endpoint_slice_controller_services_count_by_traffic_distribution", labels); got != 1 {
			return fmt.Errorf("%v services with PreferClose", got)
		}
		return nil
	})
	c.ChangeService("web", traffic(v1.ServiceTrafficDistributionPreferSameNode))
	c.await("web", "the own node", also(total(4, 1, 100), nodes(true)))
	c.ChangeService("web", traffic(""))
	c.await("web", "no hints", both(total(4, 1, 100), hinted(map[string]int{})))
	c.ChangeService("web", func(s *v1.Service) {
		traffic(v1.ServiceTrafficDistributionPreferClose)(s)
		annotation(v1.AnnotationTopologyMode, "Auto")(s)
	})
	c.AwaitEvent("web", "TopologyAwareHintsEnabled",
		"Normal "+component+" Topology Aware Hints has been enabled, addressType: IPv4")
}

func TestAcceptance17_ChangesOfPodsAreGathered(t *testing.T) {
	t.Parallel()
	const batch = 3 * time.Second
	c := start(t)
	c.controller.ApplyLive(section(func(s *schema.EndpointSliceController) { s.EndpointUpdatesBatchPeriod.Duration = batch }))
	c.MakeService("web")
	for i := range 3 {
		c.MakePod(fmt.Sprint("p", i), "web", ips(i), fixture.Ready(false))
	}
	c.await("web", "the pods", total(3, 1, 100))
	c.Idle(c.controller)
	writes := len(c.Writes(fixture.Slices))
	began := time.Now()
	for i := range 3 {
		c.SetPodStatus(fmt.Sprint("p", i), fixture.Ready(true))
	}
	c.Idle(c.controller)
	gathered := time.Since(began)
	c.await("web", "the ready pods", lists("[10.1.0.1]RS [10.1.0.2]RS [10.1.0.3]RS"))
	more := c.WritesOf(fixture.Slices, writes)
	if gathered < batch && len(more) != 1 {
		t.Errorf("%d writes for changes within %s", len(more), gathered)
	}
	if after := more[0].At.Sub(began); after < batch {
		t.Errorf("written after %s", after)
	}
	// A change of the Service waits for nothing: it is written while the pod's still waits.
	c.controller.ApplyLive(section(func(s *schema.EndpointSliceController) { s.EndpointUpdatesBatchPeriod.Duration = time.Hour }))
	c.NoWrites(fixture.Slices, "the wait", func() { c.SetPodStatus("p0", fixture.Ready(false)) })
	c.ChangeService("web", func(s *v1.Service) { s.Labels = map[string]string{"now": ""} })
	c.await("web", "the label", also(total(3, 1, 100), func(slice *discovery.EndpointSlice) error {
		if _, ok := slice.Labels["now"]; !ok {
			return errors.New("no label")
		}
		return nil
	}))
}

func TestAcceptance18_WhatDoesNotMatterIsNotWritten(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	c.await("web", "the endpoint", lists("[10.1.0.1]RS"))
	c.Idle(c.controller)
	syncs := c.metric("endpoint_slice_controller_syncs", map[string]string{"result": "success"})
	c.NoWrites(fixture.Slices, "peace", func() {
		c.ChangePod("p1", func(pod *v1.Pod) { pod.Annotations = map[string]string{"a": "b"} })
		c.SetPodStatus("p1", func(pod *v1.Pod) { pod.Status.Message = "still here" })
	})
	if now := c.metric("endpoint_slice_controller_syncs", map[string]string{"result": "success"}); now != syncs {
		t.Errorf("%v reconciles for nothing", now-syncs)
	}
}

func TestAcceptance19_AHeldSliceHoldsNothingUp(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", func(s *v1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("web") })
	c.MakePod("p1", "web", []string{"10.1.0.1"}, fixture.Port("web", 8080))
	c.MakePod("p2", "web", []string{"10.1.0.2"}, fixture.Port("web", 9090))
	all := c.await("web", "two slices", lists("[10.1.0.1]RS", "[10.1.0.2]RS"))
	for i := range all {
		c.PatchSlice(all[i].Name, `{"metadata":{"finalizers":["example.com/hold"]}}`)
	}
	c.Idle(c.controller)
	c.RemovePod("p1")
	c.RemovePod("p2")
	c.await("web", "one slice that stays", func(all []discovery.EndpointSlice) error {
		staying := slices.DeleteFunc(all, func(s discovery.EndpointSlice) bool { return s.DeletionTimestamp != nil })
		return lists("")(staying)
	})
	c.MakePod("p3", "web", []string{"10.1.0.3"}, fixture.Port("web", 8080))
	c.await("web", "the next pod", func(all []discovery.EndpointSlice) error {
		staying := slices.DeleteFunc(all, func(s discovery.EndpointSlice) bool { return s.DeletionTimestamp != nil })
		return lists("[10.1.0.3]RS")(staying)
	})
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "peace", func() {
		c.DeleteService("web")
		c.Idle(c.controller)
	})
	if errs := c.metric("endpoint_slice_controller_syncs", map[string]string{"result": "error"}); errs > 0 {
		t.Errorf("%v failures", errs)
	}
}

func TestAcceptance20_AStartWritesWhatHasChanged(t *testing.T) {
	t.Parallel()
	c := start(t, func(s *schema.EndpointSliceController) { s.MaxEndpointsPerSlice = 20 })
	const pods = 50
	for i := range pods {
		c.MakePod(fmt.Sprint("p", i), "web", ips(i))
	}
	c.controller.CatchUp()
	c.MakeService("web")
	for i := range 10 {
		name := fmt.Sprint("other", i)
		c.MakePod(name, name, ips(100+i))
		c.MakeService(name)
		c.await(name, "the endpoint", total(1, 1, 20))
	}
	ours := map[string]bool{}
	for _, slice := range c.await("web", "the endpoints", total(pods, 4, 20)) {
		ours[slice.Name] = true
	}
	c.Idle(c.controller)
	c.controller.Stop()
	writes := len(c.Writes(fixture.Slices))
	for i := range pods {
		if i%2 == 0 {
			c.RemovePod(fmt.Sprint("p", i))
		} else {
			c.SetPodStatus(fmt.Sprint("p", i), fixture.Ready(false))
		}
	}
	c.controller.Start()
	notReady := also(total(pods/2, 4, 20), func(slice *discovery.EndpointSlice) error {
		for i := range slice.Endpoints {
			if *slice.Endpoints[i].Conditions.Ready {
				return errors.New("an endpoint is ready")
			}
		}
		return nil
	})
	c.await("web", "the changes", notReady)
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "peace")
	// What is left needs no new slice, and a slice that is created would have no name here.
	for _, write := range c.WritesOf(fixture.Slices, writes) {
		if !ours[write.Name] {
			t.Errorf("a write that is not to the changed service's: %+v", write)
		}
	}
	for i := range 10 {
		c.await(fmt.Sprint("other", i), "the endpoint", total(1, 1, 20))
	}
}

func TestAcceptance21_ResizesDuringChurn(t *testing.T) {
	t.Parallel()
	c := start(t)
	const services, pods = 10, 5
	for i := range services {
		name := fmt.Sprint("web", i)
		c.MakeService(name)
		for j := range pods {
			c.MakePod(fmt.Sprint(name, "-", j), name, ips(i*pods+j))
		}
	}
	for flip := range 500 {
		switch flip {
		case 100:
			c.controller.Resize(1)
		case 300:
			c.controller.Resize(20)
		}
		i := flip % (services * pods)
		c.SetPodStatus(fmt.Sprintf("web%d-%d", i/pods, i%pods), fixture.Ready(flip/(services*pods)%2 == 0))
	}
	for i := range services {
		c.await(fmt.Sprint("web", i), "the last state", also(total(pods, 1, 100), func(slice *discovery.EndpointSlice) error {
			for j := range slice.Endpoints {
				if *slice.Endpoints[j].Conditions.Ready {
					return errors.New("an endpoint is ready")
				}
			}
			return nil
		}))
	}
	if errs := c.metric("endpoint_slice_controller_syncs", map[string]string{"result": "error"}); errs > 0 {
		t.Errorf("%v failures", errs)
	}
}

func TestAcceptance22_ATerminatingNamespaceIsLeftInPeace(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", func(s *v1.Service) { s.Finalizers = []string{"example.com/hold"} })
	c.MakePod("p1", "web", []string{"10.1.0.1"}, func(pod *v1.Pod) { pod.Finalizers = []string{"example.com/hold"} })
	slice := c.await("web", "the endpoint", lists("[10.1.0.1]RS"))[0]
	c.Idle(c.controller)
	if err := c.Admin.CoreV1().Namespaces().Delete(t.Context(), c.Namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	writes := len(c.Writes(fixture.Slices))
	c.deleteSlice(slice.Name)
	harness.Eventually(t, fixture.Soon, "the refusal", func(context.Context) error {
		more := c.WritesOf(fixture.Slices, writes)
		if len(more) == 0 {
			return errors.New("no write so far")
		}
		if more[0].Code != http.StatusForbidden {
			t.Fatalf("answer %+v", more[0])
		}
		return nil
	})
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "peace")
	if all, err := c.Events(t.Context(), "web", "FailedToUpdateEndpointSlices"); err != nil || len(all) > 0 {
		t.Errorf("events %v, %v", all, err)
	}
	if errs := c.metric("endpoint_slice_controller_syncs", map[string]string{"result": "error"}); errs > 0 {
		t.Errorf("%v failures", errs)
	}
}

func TestAcceptance23_OptionsOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	d := endpointslice.Descriptor()
	if d.Section.MaxWorkers != 50 {
		t.Errorf("up to %d workers", d.Section.MaxWorkers)
	}
	for text, want := range map[string]string{
		"workers=0":                 "workers",
		"workers=51":                "workers",
		"maxEndpointsPerSlice=0":    "maxEndpointsPerSlice",
		"maxEndpointsPerSlice=1001": "maxEndpointsPerSlice",
	} {
		if err := fixture.Refused("endpointslice-controller", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
