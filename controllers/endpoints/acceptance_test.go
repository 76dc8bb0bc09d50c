package endpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	fixture "github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

const http8080 = "http/8080/TCP"

func TestAcceptance01_AReadyPodIsListed(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", func(s *v1.Service) { s.Labels = map[string]string{"x": "y"} })
	pod := c.MakePod("p1", "web", []string{"10.1.0.1"})
	e := c.await("web", "the address", has("10.1.0.1 |  : "+http8080))
	address := e.Subsets[0].Addresses[0]
	if *address.NodeName != c.Node("n1") || *address.TargetRef != (v1.ObjectReference{Kind: "Pod", Namespace: c.Namespace, Name: "p1", UID: pod.UID}) {
		t.Errorf("address %+v", address)
	}
	if err := labelled(map[string]string{"x": "y", managedBy: manager})(e); err != nil {
		t.Error(err)
	}
	if e.Annotations[v1.EndpointsLastChangeTriggerTime] == "" || len(e.OwnerReferences) > 0 {
		t.Errorf("metadata %+v", e.ObjectMeta)
	}
}

func TestAcceptance02_ReadinessMovesTheAddress(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	c.await("web", "the address", has("10.1.0.1 |  : "+http8080))
	c.SetPodStatus("p1", fixture.Ready(false))
	c.await("web", "the address that is not ready", has(" | 10.1.0.1 : "+http8080))
	c.SetPodStatus("p1", fixture.Ready(true))
	c.await("web", "the address", has("10.1.0.1 |  : "+http8080))
}

func TestAcceptance03_TerminatingPods(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.MakeService("all", func(s *v1.Service) {
		s.Spec.PublishNotReadyAddresses = true
		s.Spec.Selector = map[string]string{"app": "web"}
	})
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	c.await("web", "the address", has("10.1.0.1 |  : "+http8080))
	c.await("all", "the address", has("10.1.0.1 |  : "+http8080))
	c.DeletePod("p1")
	c.await("web", "no address", has())
	c.Idle(c.controller)
	c.await("all", "the address", has("10.1.0.1 |  : "+http8080))
	c.RemovePod("p1")
	c.await("all", "no address", has())
}

// A pod that has finished is not listed, whatever its readiness.
func TestAcceptance04_FinishedPodsAreNotListed(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	for i, finish := range []func(*v1.Pod){
		func(pod *v1.Pod) { fixture.Ready(false)(pod); fixture.Phase(v1.PodSucceeded)(pod) },
		fixture.Phase(v1.PodFailed), // still ready
	} {
		name := fmt.Sprint("p", i)
		c.MakePod(name, "web", []string{"10.1.0.1"})
		c.await("web", "the address", has("10.1.0.1 |  : "+http8080))
		c.SetPodStatus(name, finish)
		c.await("web", "no address", has())
	}
}

func TestAcceptance05_HeadlessServices(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("db", fixture.Headless, func(s *v1.Service) { s.Spec.Ports = nil })
	c.MakePod("p1", "db", []string{"10.1.0.1"}, func(pod *v1.Pod) { pod.Spec.Hostname, pod.Spec.Subdomain = "db-0", "db" })
	e := c.await("db", "an address without ports", has("10.1.0.1 |  : "))
	if err := labelled(map[string]string{v1.IsHeadlessService: "", managedBy: manager})(e); err != nil {
		t.Error(err)
	}
	if host := e.Subsets[0].Addresses[0].Hostname; host != "db-0" {
		t.Errorf("hostname %q", host)
	}
	c.MakeService("web", func(s *v1.Service) {
		s.Labels = map[string]string{v1.IsHeadlessService: "", managedBy: "me", "x": "y"}
	})
	c.await("web", "labels", labelled(map[string]string{"x": "y", managedBy: manager}))
	c.Idle(c.controller)
	c.NoWrites(fixture.Endpoints, "peace though the service has labels of its Endpoints", func() {
		c.ChangeService("web", func(s *v1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, "touched", "") })
	})
}

func TestAcceptance06_NamedPorts(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", func(s *v1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("web") })
	c.MakePod("p1", "web", []string{"10.1.0.1"}, fixture.Port("web", 8080))
	c.MakePod("p2", "web", []string{"10.1.0.2"}, fixture.Port("web", 9090))
	c.MakePod("p3", "web", []string{"10.1.0.3"})
	c.await("web", "a subset for each port", has("10.1.0.1 |  : http/8080/TCP", "10.1.0.2 |  : http/9090/TCP"))
}

func TestAcceptance07_PortsShareSubsets(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", func(s *v1.Service) {
		s.Spec.Ports[0].TargetPort = intstr.FromString("web")
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "https", Port: 443, TargetPort: intstr.FromString("tls")})
	})
	c.MakePod("p1", "web", []string{"10.1.0.1"}, fixture.Port("web", 80), fixture.Port("tls", 443))
	c.MakePod("p2", "web", []string{"10.1.0.2"}, fixture.Port("web", 80), fixture.Port("tls", 443))
	c.await("web", "one subset", has("10.1.0.1 10.1.0.2 |  : http/80/TCP https/443/TCP"))
	c.MakePod("p3", "web", []string{"10.1.0.3"}, fixture.Port("web", 80))
	c.await("web", "two subsets", has("10.1.0.1 10.1.0.2 10.1.0.3 |  : http/80/TCP", "10.1.0.1 10.1.0.2 |  : https/443/TCP"))
}

func TestAcceptance08_ProtocolsAreKeptApart(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("dns", func(s *v1.Service) {
		s.Spec.Ports = []v1.ServicePort{
			{Name: "tcp", Port: 53, Protocol: v1.ProtocolTCP, AppProtocol: ptr.To("example.com/dns")},
			{Name: "udp", Port: 53, Protocol: v1.ProtocolUDP},
		}
	})
	c.MakePod("p1", "dns", []string{"10.1.0.1"})
	e := c.await("dns", "both ports", has("10.1.0.1 |  : tcp/53/TCP udp/53/UDP"))
	for _, port := range e.Subsets[0].Ports {
		if want := map[string]string{"tcp": "example.com/dns"}[port.Name]; ptr.Deref(port.AppProtocol, "") != want {
			t.Errorf("port %+v", port)
		}
	}
}

func TestAcceptance09_LabelsOfPodsDecide(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("a")
	c.MakeService("b")
	c.MakePod("p1", "a", []string{"10.1.0.1"})
	c.await("a", "the address", has("10.1.0.1 |  : "+http8080))
	c.ChangePod("p1", func(pod *v1.Pod) { pod.Labels["app"] = "b" })
	c.await("a", "no address", has())
	c.await("b", "the address", has("10.1.0.1 |  : "+http8080))
	c.ChangeService("a", func(s *v1.Service) { s.Spec.Selector["app"] = "b" })
	c.await("a", "the address", has("10.1.0.1 |  : "+http8080))
}

func TestAcceptance10_HandsOnEndpoints(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	old := c.await("web", "the address", has("10.1.0.1 |  : "+http8080))
	c.remove("web")
	c.await("web", "new Endpoints", func(e *v1.Endpoints) error {
		if e.UID == old.UID {
			return errors.New("they are the old ones")
		}
		return has("10.1.0.1 |  : " + http8080)(e)
	})
	c.Idle(c.controller)
	c.NoWrites(fixture.Endpoints, "the edit", func() {
		c.patch("web", `{"subsets":[{"addresses":[{"ip":"10.9.9.9"}],"ports":[{"port":1}]}]}`)
	})
	c.await("web", "the edit", has("10.9.9.9 |  : /1/TCP"))
	c.SetPodStatus("p1", fixture.Ready(false))
	c.await("web", "the address that is not ready", has(" | 10.1.0.1 : "+http8080))
}

func TestAcceptance11_LabelsFollowTheService(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", func(s *v1.Service) { s.Labels = map[string]string{"x": "y"} })
	c.await("web", "the label", labelled(map[string]string{"x": "y", managedBy: manager}))
	c.patch("web", `{"metadata":{"labels":{"foreign":"yes"},"annotations":{"foreign":"yes"}}}`)
	c.ChangeService("web", func(s *v1.Service) { s.Labels = map[string]string{"z": "w"} })
	e := c.await("web", "the new label", labelled(map[string]string{"z": "w", managedBy: manager}))
	if e.Annotations["foreign"] != "yes" {
		t.Errorf("annotations %v", e.Annotations)
	}
}

func TestAcceptance12_EndpointsGoWithTheirService(t *testing.T) {
	t.Parallel()
	c := start(t)
	for _, name := range []string{"live", "missed"} {
		c.MakeService(name)
		c.await(name, "Endpoints", has())
	}
	c.DeleteService("live")
	c.awaitGone("live")
	c.controller.Stop()
	c.DeleteService("missed")
	c.make("lock", map[string]string{"control-plane.alpha.kubernetes.io/leader": "{}"})
	c.controller.Start()
	c.awaitGone("missed")
	c.NoWrites(fixture.Endpoints, "the life of a lock and of what was made while we run", func() { c.make("stray", nil) })
	c.controller.CatchUp()
	c.controller.Restart()
	c.awaitGone("stray")
	c.NoWrites(fixture.Endpoints, "the life of a lock")
	if _, err := c.get(t.Context(), "lock"); err != nil {
		t.Error(err)
	}
}

// So do those that the cache does not show yet.
func TestEndpointsThatAreNotSeenYetGoWithTheirService(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("hand", func(s *v1.Service) { s.Spec.Selector = nil })
	release := c.Proxy.HoldWatches(fixture.Endpoints)
	defer release()
	c.make("hand", nil)
	c.DeleteService("hand")
	c.awaitGone("hand")
}

// That the cache lacks a Service proves nothing when its Endpoints were there before.
func TestEndpointsOfAServiceThatIsNotSeenYetStay(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("early")
	c.await("early", "Endpoints", has())
	c.controller.Stop() // the caches live on for a while
	release := c.Proxy.HoldWatches(schema.GroupResource{Resource: "services"})
	c.MakeService("late", func(s *v1.Service) { s.Spec.Selector = nil })
	before := c.make("late", nil)
	harness.Eventually(t, fixture.Soon, "a cache that has the Endpoints", func(context.Context) error {
		c.controller.Restart()
		gets := c.Proxy.Requests(func(r apiproxy.Request) bool {
			return r.Verb == "get" && r.Resource.Resource == "services" && r.Name == "late"
		})
		if len(gets) == 0 {
			return errors.New("nobody has asked for the service")
		}
		return nil
	})
	c.Rest(c.controller)
	c.NoWrites(fixture.Endpoints, "the Endpoints", release)
	c.Idle(c.controller)
	if after, err := c.get(t.Context(), "late"); err != nil || after.UID != before.UID {
		t.Errorf("%v, %v", after, err)
	}
}

// A Service that was made again at once keeps the Endpoints that somebody made
// for it, although the cache shows only that the first one is gone.
func TestEndpointsOfAServiceThatIsMadeAgainStay(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", func(s *v1.Service) { s.Spec.Selector = nil })
	c.make("web", nil)
	c.MakeService("other")
	c.await("other", "Endpoints", has())
	c.Idle(c.controller)
	deletes := func(r apiproxy.Request) bool { return r.Verb == "delete" && r.Resource == fixture.Endpoints }
	stop := c.Proxy.Answer(deletes, http.StatusServiceUnavailable, 0)
	c.DeleteService("web")
	harness.Eventually(t, fixture.Soon, "an attempt", func(context.Context) error {
		if len(c.Proxy.Requests(deletes)) == 0 {
			return errors.New("none so far")
		}
		return nil
	})
	release := c.Proxy.HoldWatches(schema.GroupResource{Resource: "services"})
	c.MakeService("web", func(s *v1.Service) { s.Spec.Selector = nil })
	c.remove("web")
	made := c.make("web", nil)
	stop()
	c.Rest(c.controller)
	c.NoWrites(fixture.Endpoints, "the Endpoints", release)
	c.Idle(c.controller)
	if after, err := c.get(t.Context(), "web"); err != nil || after.UID != made.UID {
		t.Errorf("%v, %v", after, err)
	}
}

// A 404 of something before the API server says nothing about a Service.
func TestOnlyTheAPIServerKnowsThatAServiceIsGone(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.make("stray", nil)
	c.controller.CatchUp()
	c.controller.Stop()
	gets := func(r apiproxy.Request) bool {
		return r.Verb == "get" && r.Resource.Resource == "services" && r.Name == "stray"
	}
	stop := c.Proxy.Answer(gets, http.StatusNotFound, 0)
	c.controller.Restart()
	harness.Eventually(t, fixture.Soon, "a second question", func(context.Context) error {
		if len(c.Proxy.Requests(gets)) < 2 {
			return errors.New("not so far")
		}
		return nil
	})
	if _, err := c.get(t.Context(), "stray"); err != nil {
		t.Error(err)
	}
	stop()
	c.awaitGone("stray")
}

// Nor about Endpoints that are to be deleted.
func TestOnlyTheAPIServerKnowsThatEndpointsAreGone(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.await("web", "Endpoints", has())
	deletes := func(r apiproxy.Request) bool { return r.Verb == "delete" && r.Resource == fixture.Endpoints }
	stop := c.Proxy.Answer(deletes, http.StatusNotFound, 0)
	c.DeleteService("web")
	harness.Eventually(t, fixture.Soon, "an attempt", func(context.Context) error {
		if len(c.Proxy.Requests(deletes)) == 0 {
			return errors.New("none so far")
		}
		return nil
	})
	stop()
	c.awaitGone("web")
}

func TestAcceptance13_HandMadeEndpointsAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("hand", func(s *v1.Service) { s.Spec.Selector = nil })
	var made *v1.Endpoints
	c.NoWrites(fixture.Endpoints, "the hand-made Endpoints", func() {
		made = c.make("hand", nil)
		c.controller.CatchUp() // so that it has something to leave alone
		c.controller.Restart()
		c.ChangeService("hand", func(s *v1.Service) { s.Labels = map[string]string{"x": "y"} })
	})
	if after, err := c.get(t.Context(), "hand"); err != nil || after.UID != made.UID || after.ResourceVersion != made.ResourceVersion {
		t.Errorf("%v, %v", after, err)
	}
	c.DeleteService("hand")
	c.awaitGone("hand")
}

func TestAcceptance14_ExternalNames(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakePod("p1", "out", []string{"10.1.0.1"})
	c.NoWrites(fixture.Endpoints, "peace", func() {
		c.MakeService("out", func(s *v1.Service) {
			s.Spec.Type, s.Spec.ExternalName = v1.ServiceTypeExternalName, "example.com"
		})
	})
	c.ChangeService("out", func(s *v1.Service) {
		s.Spec.Type, s.Spec.ExternalName = v1.ServiceTypeClusterIP, ""
	})
	c.await("out", "the address", has("10.1.0.1 |  : "+http8080))
	c.Idle(c.controller)
	c.NoWrites(fixture.Endpoints, "the Endpoints as they were", func() {
		c.ChangeService("out", func(s *v1.Service) {
			s.Spec.Type, s.Spec.ExternalName, s.Spec.ClusterIP, s.Spec.ClusterIPs = v1.ServiceTypeExternalName, "example.com", "", nil
		})
	})
}

func TestAcceptance15_TheFirstFamilyCounts(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakePod("both", "web", []string{"10.1.0.1", "fd00::1"})
	c.MakePod("v4", "only4", []string{"10.1.0.2"})
	c.MakeService("web4", fixture.Families(v1.IPv4Protocol, v1.IPv6Protocol), selecting("web"))
	c.MakeService("web6", fixture.Families(v1.IPv6Protocol, v1.IPv4Protocol), selecting("web"))
	c.MakeService("only6", fixture.Families(v1.IPv6Protocol), selecting("only4"))
	c.await("web4", "the first family", has("10.1.0.1 |  : "+http8080))
	c.await("web6", "the first family", has("fd00::1 |  : "+http8080))
	c.await("only6", "no address", has())
}

func selecting(app string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.Selector = map[string]string{"app": app} }
}

// What the API server would refuse in Endpoints does not keep the rest out.
func TestAddressesThatAreRefusedAreLeftOut(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakePod("loopback", "web", []string{"127.0.0.1"})
	c.MakePod("nowhere", "web", []string{"10.1.0.2"}, c.OnNode(""))
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	c.MakeService("web")
	e := c.await("web", "what can be listed", has("10.1.0.1 10.1.0.2 |  : "+http8080))
	for _, address := range e.Subsets[0].Addresses {
		if (address.NodeName != nil) != (address.IP == "10.1.0.1") {
			t.Errorf("node of %s: %v", address.IP, address.NodeName)
		}
	}
	for _, pod := range []string{"loopback", "nowhere", "p1"} {
		c.RemovePod(pod)
	}
	c.await("web", "no address", has())
}

func TestAcceptance16_OverCapacity(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.controller.Stop()
	c.MakePods(capacity+1, func(i int) (string, string, []string) {
		return fmt.Sprintf("p%04d", i), "web", []string{fmt.Sprintf("10.1.%d.%d", 10+i/90, 110+i%90)} // in order of text
	})
	c.MakeService("web")
	c.controller.Start()
	holds := func(addresses int, over bool) func(*v1.Endpoints) error {
		return func(e *v1.Endpoints) error {
			if len(e.Subsets) != 1 || len(e.Subsets[0].Addresses) != addresses || (e.Annotations[v1.EndpointsOverCapacity] == truncated) != over {
				return fmt.Errorf("%d subsets, annotations %v", len(e.Subsets), e.Annotations)
			}
			return nil
		}
	}
	c.await("web", "a thousand", holds(capacity, true))
	c.Idle(c.controller)
	c.NoWrites(fixture.Endpoints, "peace about a pod that is cut", func() {
		last := fmt.Sprintf("p%04d", capacity)
		for i := range 10 {
			c.SetPodStatus(last, fixture.Ready(i%2 == 1))
		}
		c.Idle(c.controller)
	})
	c.ChangeService("web", func(s *v1.Service) { s.Labels = map[string]string{"x": "y"} })
	c.await("web", "the label", labelled(map[string]string{"x": "y", managedBy: manager}))
	c.RemovePod("p0500")
	c.await("web", "no surplus", holds(capacity, false))
}

func TestAcceptance17_ChangesOfPodsAreGathered(t *testing.T) {
	t.Parallel()
	const period = 3 * time.Second
	c := start(t)
	c.controller.ApplyLive(batch(period))
	c.MakeService("web")
	for i := range 3 {
		c.MakePod(fmt.Sprint("p", i), "web", []string{fmt.Sprint("10.1.0.", 1+i)}, fixture.Ready(false))
	}
	c.await("web", "the pods", has(" | 10.1.0.1 10.1.0.2 10.1.0.3 : "+http8080))
	c.Idle(c.controller)
	writes := len(c.Writes(fixture.Endpoints))
	began := time.Now()
	for i := range 3 {
		c.SetPodStatus(fmt.Sprint("p", i), fixture.Ready(true))
	}
	c.Idle(c.controller)
	gathered := time.Since(began)
	c.await("web", "the ready pods", has("10.1.0.1 10.1.0.2 10.1.0.3 |  : "+http8080))
	more := c.WritesOf(fixture.Endpoints, writes)
	if gathered < period && len(more) != 1 {
		t.Errorf("%d writes for changes within %s", len(more), gathered)
	}
	if after := more[0].At.Sub(began); after < period {
		t.Errorf("written after %s", after)
	}
	// A change of the Service waits for nothing: it is written while the pod's still waits.
	c.controller.ApplyLive(batch(time.Hour))
	c.NoWrites(fixture.Endpoints, "the wait", func() { c.SetPodStatus("p0", fixture.Ready(false)) })
	c.ChangeService("web", func(s *v1.Service) { s.Labels = map[string]string{"now": ""} })
	c.await("web", "the label", labelled(map[string]string{"now": "", managedBy: manager}))
}

func TestAcceptance18_WhatDoesNotMatterIsNotWritten(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	c.await("web", "the address", has("10.1.0.1 |  : "+http8080))
	c.Idle(c.controller)
	c.NoWrites(fixture.Endpoints, "peace", func() {
		c.ChangePod("p1", func(pod *v1.Pod) { pod.Annotations = map[string]string{"a": "b"} })
	})
}

// The last of many changes counts, though each write is seen only a while later.
func TestAcceptance19_TheLastChangeCounts(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web")
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	c.await("web", "the address", has("10.1.0.1 |  : "+http8080))
	c.Proxy.DelayWatches(fixture.Endpoints, 300*time.Millisecond)
	for i := range 50 {
		c.SetPodStatus("p1", fixture.Ready(i%2 == 1))
	}
	c.await("web", "the last state", has("10.1.0.1 |  : "+http8080))
	c.Idle(c.controller)
	c.await("web", "the last state", has("10.1.0.1 |  : "+http8080))
	for _, write := range c.Writes(fixture.Endpoints) {
		if write.Code >= 400 {
			t.Errorf("refused: %+v", write)
		}
	}
}

func TestAcceptance20_ATerminatingNamespaceIsLeftInPeace(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeService("web", func(s *v1.Service) { s.Finalizers = []string{"example.com/hold"} })
	c.MakePod("p1", "web", []string{"10.1.0.1"}, func(pod *v1.Pod) { pod.Finalizers = []string{"example.com/hold"} })
	c.await("web", "the address", has("10.1.0.1 |  : "+http8080))
	c.Idle(c.controller)
	if err := c.Admin.CoreV1().Namespaces().Delete(t.Context(), c.Namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	writes := len(c.Writes(fixture.Endpoints))
	c.remove("web")
	c.written(writes)
	c.NoWrites(fixture.Endpoints, "peace")
	if more := c.WritesOf(fixture.Endpoints, writes); len(more) != 1 || more[0].Code != http.StatusForbidden {
		t.Errorf("written: %+v", more)
	}
	if all, err := c.Events(t.Context(), "web", failedToCreate); err != nil || len(all) > 0 {
		t.Errorf("events %v, %v", all, err)
	}
}

func TestAcceptance21_AStartWithoutChangesWritesNothing(t *testing.T) {
	t.Parallel()
	c := start(t)
	for i := range 20 {
		name := fmt.Sprint("web", i)
		c.MakeService(name)
		c.MakePod(name, name, []string{fmt.Sprint("10.1.0.", 1+i)})
	}
	for i := range 20 {
		c.await(fmt.Sprint("web", i), "the address", has(fmt.Sprintf("10.1.0.%d |  : %s", 1+i, http8080)))
	}
	c.Idle(c.controller)
	c.NoWrites(fixture.Endpoints, "peace", c.controller.Restart)
}

func TestAcceptance22_ResizesDuringChurn(t *testing.T) {
	t.Parallel()
	c := start(t)
	const services, pods = 10, 4
	for i := range services {
		c.MakeService(fmt.Sprint("web", i))
	}
	c.MakePods(services*pods, func(n int) (string, string, []string) {
		return fmt.Sprint("p", n), fmt.Sprint("web", n/pods), []string{fmt.Sprint("10.1.0.", 101+n)}
	})
	for flip := range 5 * services * pods {
		switch flip {
		case 40:
			c.controller.Resize(1)
		case 120:
			c.controller.Resize(10)
		}
		c.SetPodStatus(fmt.Sprint("p", flip%(services*pods)), fixture.Ready(flip/(services*pods)%2 == 1))
	}
	for i := range services {
		n := 101 + i*pods
		c.await(fmt.Sprint("web", i), "the last state", has(fmt.Sprintf(" | 10.1.0.%d 10.1.0.%d 10.1.0.%d 10.1.0.%d : %s", n, n+1, n+2, n+3, http8080)))
	}
}

// That somebody else was faster is neither told of nor logged as an error.
func TestOvertakenWritesAreNotTold(t *testing.T) {
	t.Parallel()
	var log harness.Log
	c := startWith(t, harness.Options{Log: io.MultiWriter(t.Output(), &log)})
	refused := func(verb string, code int) {
		t.Helper()
		harness.Eventually(t, fixture.Soon, "a refused "+verb, func(context.Context) error {
			for _, write := range c.Writes(fixture.Endpoints) {
				if write.Verb == verb && write.Code == code {
					return nil
				}
			}
			return errors.New("none so far")
		})
	}
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	c.Idle(c.controller)
	release := c.Proxy.HoldWatches(fixture.Endpoints)
	c.make("web", nil)
	c.MakeService("web")
	refused("create", http.StatusConflict)
	release()
	c.await("web", "the address", has("10.1.0.1 |  : "+http8080))

	c.Idle(c.controller)
	release = c.Proxy.HoldWatches(fixture.Endpoints)
	c.remove("web")
	c.SetPodStatus("p1", fixture.Ready(false))
	refused("update", http.StatusConflict)
	release()
	c.await("web", "the address that is not ready", has(" | 10.1.0.1 : "+http8080))

	for _, reason := range []string{failedToCreate, failedToUpdate} {
		if all, err := c.Events(t.Context(), "web", reason); err != nil || len(all) > 0 {
			t.Errorf("events %v, %v", all, err)
		}
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Error("errors are logged")
	}
}

// Refused writes are told of on the Endpoints.
func TestFailuresAreTold(t *testing.T) {
	t.Parallel()
	c := start(t)
	for _, test := range []struct{ verb, reason, message string }{
		{"create", failedToCreate, "Failed to create endpoint for service %s/web: "},
		{"update", failedToUpdate, "Failed to update endpoint %s/web: "},
	} {
		verb, reason := test.verb, test.reason
		want := "Warning endpoint-controller " + fmt.Sprintf(test.message, c.Namespace)
		stop := c.Proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == verb && r.Resource == fixture.Endpoints }, http.StatusUnprocessableEntity, 0)
		if verb == "create" {
			c.MakeService("web")
		} else {
			c.ChangeService("web", func(s *v1.Service) { s.Labels = map[string]string{"x": "y"} })
		}
		harness.Eventually(t, fixture.Soon, "the event", func(ctx context.Context) error {
			all, err := c.Events(ctx, "web", reason)
			if err == nil && !slices.ContainsFunc(all, func(event string) bool { return strings.HasPrefix(event, want) }) {
				return fmt.Errorf("want %q…, got %q", want, all)
			}
			return err
		})
		stop()
		c.await("web", "Endpoints all the same", func(e *v1.Endpoints) error {
			if verb == "update" && !maps.Equal(e.Labels, map[string]string{"x": "y", managedBy: manager}) {
				return errors.New("not updated")
			}
			return nil
		})
	}
}

// A reload at any moment changes nothing about where the Endpoints end up, and
// leaves no ready pod out for long.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakeNode("n1", "a")
	churn := fixture.NewChurn(c.World, c.FollowEndpoints())
	churn.Run(c.controller)
	churn.Check()
	c.Idle(c.controller)
	c.NoWrites(fixture.Endpoints, "the final state")
}
