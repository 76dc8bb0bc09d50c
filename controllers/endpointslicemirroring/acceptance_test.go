package endpointslicemirroring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	fixture "github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

func TestAcceptance01_EndpointsAreMirrored(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("db")
	endpoints := c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	slice := c.await("db", "the mirror", lists("80: [10.0.0.1]R"))[0]
	owner := metav1.GetControllerOf(&slice)
	if owner == nil || owner.Kind != "Endpoints" || owner.APIVersion != "v1" || owner.UID != endpoints.UID || !*owner.BlockOwnerDeletion {
		t.Errorf("owner %+v", owner)
	}
	if !strings.HasPrefix(slice.Name, "db-") || slice.AddressType != discovery.AddressTypeIPv4 {
		t.Errorf("slice %+v", slice)
	}
	e := slice.Endpoints[0]
	if e.Conditions.Serving != nil || e.Conditions.Terminating != nil || e.Zone != nil || e.Hints != nil {
		t.Errorf("endpoint %+v", e)
	}
	if p := slice.Ports[0]; *p.Name != "p80" || *p.Protocol != v1.ProtocolTCP {
		t.Errorf("port %+v", p)
	}
}

func TestAcceptance02_SubsetsAreRepacked(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("same")
	c.makeEndpoints("same", subset([]string{"10.0.0.1"}, nil, 80), subset([]string{"10.0.0.1"}, nil, 90))
	c.await("same", "one slice", lists("80 90: [10.0.0.1]R"))
	c.handMade("other")
	c.makeEndpoints("other", subset([]string{"10.0.0.1"}, nil, 80), subset([]string{"10.0.0.2"}, nil, 90))
	c.await("other", "two slices", lists("80: [10.0.0.1]R", "90: [10.0.0.2]R"))
}

func TestAcceptance03_FamiliesAreKeptApart(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1", "fd00::1"}, nil, 80))
	all := c.await("db", "both families", lists("80: [10.0.0.1]R", "80: [fd00::1]R"))
	if all[0].AddressType != discovery.AddressTypeIPv4 || all[1].AddressType != discovery.AddressTypeIPv6 {
		t.Errorf("families %s and %s", all[0].AddressType, all[1].AddressType)
	}
}

func TestAcceptance04_NotReadyAddresses(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1"}, []string{"10.0.0.2"}, 80), subset([]string{"10.0.0.2"}, nil, 80))
	c.await("db", "one endpoint each", lists("80: [10.0.0.1]R [10.0.0.2]"))
}

func TestAcceptance05_MetadataFollows(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	carries := func(labels, annotations map[string]string) func([]discovery.EndpointSlice) error {
		labels = maps.Clone(labels)
		labels[discovery.LabelServiceName], labels[discovery.LabelManagedBy] = "db", manager
		return also(lists("80: [10.0.0.1]R"), func(slice *discovery.EndpointSlice) error {
			if !maps.Equal(slice.Labels, labels) || !maps.Equal(slice.Annotations, annotations) {
				return fmt.Errorf("labels %v, annotations %v", slice.Labels, slice.Annotations)
			}
			return nil
		})
	}
	none := map[string]string{}
	c.await("db", "the mirror", carries(none, none))
	c.patch("db", `{"metadata":{"labels":{"a":"b"},"annotations":{"c":"d"}}}`)
	c.await("db", "both", carries(map[string]string{"a": "b"}, map[string]string{"c": "d"}))
	c.patch("db", `{"metadata":{"labels":{"a":null}}}`)
	c.await("db", "no label", carries(none, map[string]string{"c": "d"}))
	c.NoWrites(fixture.Slices, "peace about what is not mirrored", func() {
		c.patch("db", `{"metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:00Z",
			"kubectl.kubernetes.io/last-applied-configuration":"{}"}}}`)
	})
	// Not even labels that the slices have of their own make a difference for ever.
	c.patch("db", `{"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"me","e":"f"}}}`)
	c.await("db", "the other label", carries(map[string]string{"e": "f"}, map[string]string{"c": "d"}))
	c.NoWrites(fixture.Slices, "peace", func() {
		c.patch("db", `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":""}}}`)
	})
}

func TestAcceptance06_SlicesKeepTheirName(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	before := c.await("db", "the mirror", lists("80: [10.0.0.1]R"))[0]
	c.change("db", func(e *v1.Endpoints) {
		e.Subsets[0].Addresses = []v1.EndpointAddress{{IP: "10.0.0.2"}, {IP: "10.0.0.3"}}
	})
	after := c.await("db", "the other addresses", lists("80: [10.0.0.2]R [10.0.0.3]R"))[0]
	if before.Name != after.Name || before.UID != after.UID {
		t.Errorf("slice %s became %s", before.Name, after.Name)
	}
}

func TestAcceptance07_OptingOut(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	c.await("db", "the mirror", lists("80: [10.0.0.1]R"))
	for _, step := range []struct {
		patch    string
		mirrored bool
	}{
		{`{"metadata":{"labels":{"endpointslice.kubernetes.io/skip-mirror":"true"}}}`, false},
		{`{"metadata":{"labels":{"endpointslice.kubernetes.io/skip-mirror":"false"}}}`, true},
		{`{"metadata":{"annotations":{"control-plane.alpha.kubernetes.io/leader":"{}"}}}`, false},
		{`{"metadata":{"annotations":{"control-plane.alpha.kubernetes.io/leader":null}}}`, true},
	} {
		c.patch("db", step.patch)
		if step.mirrored {
			c.await("db", "the mirror", lists("80: [10.0.0.1]R"))
		} else {
			c.await("db", "no mirror", lists())
		}
	}
}

func TestAcceptance08_SelectorsEndTheMirror(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	for _, none := range []map[string]string{nil, {}} {
		c.await("db", "the mirror", lists("80: [10.0.0.1]R"))
		c.ChangeService("db", func(s *v1.Service) { s.Spec.Selector = map[string]string{"foo": "bar"} })
		c.await("db", "no mirror", lists())
		c.ChangeService("db", func(s *v1.Service) { s.Spec.Selector = none })
	}
	c.await("db", "the mirror", lists("80: [10.0.0.1]R"))
}

func TestAcceptance09_ServiceAndEndpointsAreNeeded(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.NoWrites(fixture.Slices, "peace without a service", func() {
		c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	})
	c.handMade("db")
	c.await("db", "the mirror", lists("80: [10.0.0.1]R"))
	c.DeleteService("db")
	c.await("db", "no mirror", lists())
	c.handMade("db")
	c.await("db", "the mirror", lists("80: [10.0.0.1]R"))
	c.deleteEndpoints("db")
	c.await("db", "no mirror", lists())
}

func TestAcceptance10_NothingToMirror(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.NoWrites(fixture.Slices, "peace", func() { c.handMade("db") })
}

func TestAcceptance11_TooManyAddresses(t *testing.T) {
	t.Parallel()
	c := start(t, func(s *schema.EndpointSliceMirroringController) { s.MaxEndpointsPerSubset = 2 })
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}, nil, 80))
	c.await("db", "two endpoints", lists("80: [10.0.0.1]R [10.0.0.2]R"))
	c.AwaitEvent("db", "TooManyAddressesToMirror", "Warning endpoint-slice-mirroring-controller "+
		"A max of 2 addresses can be mirrored to EndpointSlices per Endpoints subset. 1 addresses were skipped")
	c.controller.ApplyLive(section(func(s *schema.EndpointSliceMirroringController) { s.MaxEndpointsPerSubset = 3 }))
	c.await("db", "all endpoints without a restart", lists("80: [10.0.0.1]R [10.0.0.2]R [10.0.0.3]R"))
}

func TestAcceptance12_HandsOnSlices(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	slice := c.await("db", "the mirror", lists("80: [10.0.0.1]R"))[0]
	c.PatchSlice(slice.Name, `{"endpoints":[{"addresses":["10.9.9.9"]}]}`)
	c.await("db", "the right endpoint", lists("80: [10.0.0.1]R"))
	c.PatchSlice(slice.Name, `{"metadata":{"ownerReferences":null}}`)
	c.await("db", "the owner", also(lists("80: [10.0.0.1]R"), func(s *discovery.EndpointSlice) error {
		if len(s.OwnerReferences) != 1 {
			return errors.New("none")
		}
		return nil
	}))
	c.deleteSlice(slice.Name)
	c.await("db", "another slice", lists("80: [10.0.0.1]R"))
	foreign, err := c.Admin.DiscoveryV1().EndpointSlices(c.Namespace).Create(t.Context(), &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{
			discovery.LabelServiceName: "db", discovery.LabelManagedBy: "me",
		}},
		AddressType: discovery.AddressTypeIPv4,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.change("db", func(e *v1.Endpoints) { e.Subsets = nil })
	c.await("db", "no mirror", lists())
	after, err := c.Admin.DiscoveryV1().EndpointSlices(c.Namespace).Get(t.Context(), "mine", metav1.GetOptions{})
	if err != nil || after.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the foreign slice: %v, %v", after, err)
	}
}

// A slice that is given to somebody else, or held by a finalizer, is replaced
// and then left alone, unless it is said to mirror Endpoints that there are none of.
func TestSlicesThatAreTakenAwayAreReplaced(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patch      string
		hold, goes bool
	}{
		"other manager": {patch: `{"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"me"}}}`},
		"other service": {patch: `{"metadata":{"labels":{"kubernetes.io/service-name":"elsewhere"}}}`, goes: true},
		"held":          {patch: `{"metadata":{"finalizers":["example.com/hold"]}}`, hold: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t)
			c.handMade("db")
			c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
			old := c.await("db", "the mirror", lists("80: [10.0.0.1]R"))[0]
			c.PatchSlice(old.Name, test.patch)
			if test.hold {
				c.deleteSlice(old.Name)
			}
			rest := func(want string) func([]discovery.EndpointSlice) error {
				return func(all []discovery.EndpointSlice) error {
					return lists(want)(slices.DeleteFunc(all, func(s discovery.EndpointSlice) bool { return s.Name == old.Name }))
				}
			}
			c.await("db", "another slice", rest("80: [10.0.0.1]R"))
			if test.goes {
				harness.Eventually(t, fixture.Soon, "end of the slice", func(ctx context.Context) error {
					_, err := c.Admin.DiscoveryV1().EndpointSlices(c.Namespace).Get(ctx, old.Name, metav1.GetOptions{})
					return fixture.Gone(err)
				})
				return
			}
			taken := func() *discovery.EndpointSlice {
				slice, err := c.Admin.DiscoveryV1().EndpointSlices(c.Namespace).Get(t.Context(), old.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return slice
			}
			before := taken()
			c.change("db", func(e *v1.Endpoints) { e.Subsets[0].Addresses[0].IP = "10.0.0.2" })
			c.await("db", "the change", rest("80: [10.0.0.2]R"))
			c.Idle(c.controller)
			if after := taken(); after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
				t.Errorf("the slice was written: %+v", after)
			}
		})
	}
}

func TestAcceptance13_ANamesakeIsTheNewOwner(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	c.await("db", "the mirror", lists("80: [10.0.0.1]R"))
	c.deleteEndpoints("db")
	again := c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	c.await("db", "the new owner", also(lists("80: [10.0.0.1]R"), func(slice *discovery.EndpointSlice) error {
		if len(slice.OwnerReferences) != 1 || slice.OwnerReferences[0].UID != again.UID {
			return fmt.Errorf("owners %+v", slice.OwnerReferences)
		}
		return nil
	}))
}

func TestAcceptance14_NoSubsetsNoSlices(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.NoWrites(fixture.Slices, "peace", func() {
		c.handMade("db")
		c.makeEndpoints("db")
	})
}

func TestAcceptance15_EditsOfSlicesAreGathered(t *testing.T) {
	t.Parallel()
	const period = 3 * time.Second
	c := start(t, func(s *schema.EndpointSliceMirroringController) { s.EndpointUpdatesBatchPeriod.Duration = period })
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	slice := c.await("db", "the mirror", lists("80: [10.0.0.1]R"))[0]
	c.Idle(c.controller)
	writes := len(c.Writes(fixture.Slices))
	began := time.Now()
	c.PatchSlice(slice.Name, `{"endpoints":[{"addresses":["10.9.9.9"]}]}`)
	c.await("db", "the right endpoint", lists("80: [10.0.0.1]R"))
	if more := c.WritesOf(fixture.Slices, writes); len(more) != 1 || more[0].At.Sub(began) < period {
		t.Errorf("written %+v, the edit was at %s", more, began)
	}
	// A change of the Endpoints waits for nothing.
	c.controller.ApplyLive(section(func(s *schema.EndpointSliceMirroringController) { s.EndpointUpdatesBatchPeriod.Duration = time.Hour }))
	c.NoWrites(fixture.Slices, "the wait", func() { c.PatchSlice(slice.Name, `{"endpoints":[{"addresses":["10.9.9.9"]}]}`) })
	c.change("db", func(e *v1.Endpoints) { e.Subsets[0].Addresses[0].IP = "10.0.0.2" })
	c.await("db", "the change", lists("80: [10.0.0.2]R"))
}

func TestAcceptance16_WhatHappensWhileStopped(t *testing.T) {
	t.Parallel()
	c := start(t)
	for _, name := range []string{"out", "orphan", "lost", "same"} {
		c.handMade(name)
		c.makeEndpoints(name, subset([]string{"10.0.0.1"}, nil, 80))
		c.await(name, "the mirror", lists("80: [10.0.0.1]R"))
	}
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "peace over a restart", c.controller.Restart)
	c.controller.Stop()
	c.patch("out", `{"metadata":{"labels":{"endpointslice.kubernetes.io/skip-mirror":"true"}}}`)
	c.DeleteService("orphan")
	c.deleteEndpoints("lost")
	writes := len(c.Writes(fixture.Slices))
	c.controller.Start()
	for _, name := range []string{"out", "orphan", "lost"} {
		c.await(name, "no mirror", lists())
	}
	c.Idle(c.controller)
	if more := c.WritesOf(fixture.Slices, writes); len(more) != 3 {
		t.Errorf("written: %+v", more)
	}
}

func TestAcceptance17_TheAPIServersOwnAreLeftAlone(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.NoWrites(fixture.Slices, "peace", func() {
		c.handMade("kubernetes")
		endpoints := subset([]string{"10.0.0.1"}, nil, 443)
		_, err := c.Admin.CoreV1().Endpoints(c.Namespace).Create(t.Context(), &v1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discovery.LabelSkipMirror: "true"}},
			Subsets:    []v1.EndpointSubset{endpoints},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	})
	c.NoWrites(fixture.Slices, "peace", func() {
		c.patch("kubernetes", `{"metadata":{"annotations":{"touched":""}}}`)
		c.controller.Restart()
	})
	c.await("kubernetes", "no mirror", lists())
}

// One slice goes and two come, of which one can take the place of the old one:
// no request may fail over it.
func TestAcceptance18_SlicesAreReused(t *testing.T) {
	t.Parallel()
	c := start(t)
	for i := range 20 {
		name := fmt.Sprint("db", i)
		c.handMade(name)
		c.makeEndpoints(name, subset([]string{"fd00::1"}, nil, 80))
		old := c.await(name, "the mirror", lists("80: [fd00::1]R"))[0]
		c.change(name, func(e *v1.Endpoints) {
			e.Subsets = []v1.EndpointSubset{subset([]string{"10.0.0.1", "fd00::1"}, nil, 90)}
		})
		all := c.await(name, "both families", lists("90: [10.0.0.1]R", "90: [fd00::1]R"))
		if all[1].Name != old.Name {
			t.Errorf("slice %s became %s", old.Name, all[1].Name)
		}
	}
	c.Idle(c.controller)
	for _, write := range c.Writes(fixture.Slices) {
		if write.Code >= 400 {
			t.Errorf("refused: %+v", write)
		}
	}
}

func TestAcceptance19_OptionsOutOfBoundsAreRefused(t *testing.T) {
	t.Parallel()
	for setting, field := range map[string]string{
		"workers=0": "workers", "workers=51": "workers",
		"maxEndpointsPerSubset=0": "maxEndpointsPerSubset", "maxEndpointsPerSubset=1001": "maxEndpointsPerSubset",
	} {
		if err := fixture.Refused("endpointslice-mirroring-controller", setting); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

// A reload at any moment changes nothing about where the mirrors end up.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	const count, rounds = 40, 8
	c := start(t)
	name := func(i int) string { return fmt.Sprint("db", i) }
	want := make([][]string, count)
	for i := range count {
		c.handMade(name(i))
		c.makeEndpoints(name(i), subset([]string{"10.0.0.1"}, nil, 80))
	}
	stop := c.controller.Reload(rand.Uint64(), 50, 20)
	for round := range rounds {
		for i := range count {
			ip := fmt.Sprintf("10.0.%d.%d", round, 1+i)
			switch rand.IntN(5) {
			case 0:
				c.deleteEndpoints(name(i))
				c.makeEndpoints(name(i), subset([]string{ip}, nil, 80))
				want[i] = []string{"80: [" + ip + "]R"}
			case 1:
				c.change(name(i), func(e *v1.Endpoints) { e.Subsets = []v1.EndpointSubset{subset([]string{ip, "fd00::1"}, nil, 80)} })
				want[i] = []string{"80: [" + ip + "]R", "80: [fd00::1]R"}
			case 2:
				c.change(name(i), func(e *v1.Endpoints) {
					e.Subsets = []v1.EndpointSubset{subset([]string{ip}, nil, 80), subset([]string{"10.9.9.9"}, nil, 90)}
				})
				want[i] = []string{"80: [" + ip + "]R", "90: [10.9.9.9]R"}
			case 3:
				c.change(name(i), func(e *v1.Endpoints) { e.Subsets = nil })
				want[i] = nil
			default:
				c.change(name(i), func(e *v1.Endpoints) { e.Subsets = []v1.EndpointSubset{subset(nil, []string{ip}, 80, 90)} })
				want[i] = []string{"80 90: [" + ip + "]"}
			}
		}
	}
	stop()
	for i := range count {
		c.await(name(i), "the mirror", lists(want[i]...))
	}
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "the final state")
}
