package endpointslice_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/endpointslice"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	"github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

const (
	manager   = "endpointslice-controller.k8s.io"
	component = "endpoint-slice-controller"
)

// cluster is a world with nodes n1 in zone a and n2 in zone b, where the controller runs.
type cluster struct {
	*servicefixture.World
	controller *harness.Instance
}

func start(t *testing.T, changes ...func(*schema.EndpointSliceController)) *cluster {
	t.Helper()
	return startWith(t, harness.Options{}, changes...)
}

func startWith(t *testing.T, o harness.Options, changes ...func(*schema.EndpointSliceController)) *cluster {
	t.Helper()
	w := servicefixture.New(t, o)
	w.MakeNode("n1", "a")
	w.MakeNode("n2", "b")
	c := &cluster{World: w, controller: w.Start(endpointslice.Descriptor(), section(changes...))}
	c.controller.CatchUp() // or pods may be known before their nodes, which is reported as a failure
	return c
}

func section(changes ...func(*schema.EndpointSliceController)) *schema.EndpointSliceController {
	s := schema.EndpointSliceControllerSection().New().(*schema.EndpointSliceController)
	for _, change := range changes {
		change(s)
	}
	return s
}

func (c *cluster) await(service, what string, right func([]discovery.EndpointSlice) error) []discovery.EndpointSlice {
	c.T.Helper()
	return c.AwaitSlices(service, manager, what, right)
}

// lists wants one slice for each text, which are its endpoints as
// servicefixture.DescribeEndpoint says, in any order.
func lists(want ...string) func([]discovery.EndpointSlice) error {
	return func(all []discovery.EndpointSlice) error {
		if len(all) != len(want) {
			return fmt.Errorf("want %d slices", len(want))
		}
		var got []string
		for i := range all {
			var endpoints []string
			for j := range all[i].Endpoints {
				endpoints = append(endpoints, servicefixture.DescribeEndpoint(&all[i].Endpoints[j]))
			}
			got = append(got, strings.Join(sorted(endpoints), " "))
		}
		if strings.Join(sorted(got), "; ") != strings.Join(sorted(want), "; ") {
			return fmt.Errorf("want %q", want)
		}
		return nil
	}
}

// total wants so many endpoints, each once, in so many slices at most, none of
// which has more than limit.
func total(endpoints, atMost, limit int) func([]discovery.EndpointSlice) error {
	return func(all []discovery.EndpointSlice) error {
		seen := map[string]int{}
		for i := range all {
			if len(all[i].Endpoints) > limit {
				return fmt.Errorf("%s has %d endpoints", all[i].Name, len(all[i].Endpoints))
			}
			for j := range all[i].Endpoints {
				seen[all[i].Endpoints[j].TargetRef.Name]++
			}
		}
		for name, times := range seen {
			if times != 1 {
				return fmt.Errorf("%s is listed %d times", name, times)
			}
		}
		if len(seen) != endpoints || len(all) > atMost {
			return fmt.Errorf("%d endpoints in %d slices, want %d in %d at most", len(seen), len(all), endpoints, atMost)
		}
		return nil
	}
}

// also wants something of each slice.
func also(first func([]discovery.EndpointSlice) error, of func(*discovery.EndpointSlice) error) func([]discovery.EndpointSlice) error {
	return func(all []discovery.EndpointSlice) error {
		if err := first(all); err != nil {
			return err
		}
		for i := range all {
			if err := of(&all[i]); err != nil {
				return fmt.Errorf("%s: %w", all[i].Name, err)
			}
		}
		return nil
	}
}

// hinted wants each endpoint to have these zones as hints: its own, none, or as many of each zone.
func hinted(zones map[string]int) func([]discovery.EndpointSlice) error {
	return func(all []discovery.EndpointSlice) error {
		got := map[string]int{}
		for i := range all {
			for j := range all[i].Endpoints {
				if hints := all[i].Endpoints[j].Hints; hints != nil {
					for _, zone := range hints.ForZones {
						got[zone.Name]++
					}
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(zones) {
			return fmt.Errorf("hints %v, want %v", got, zones)
		}
		return nil
	}
}

func both(first, second func([]discovery.EndpointSlice) error) func([]discovery.EndpointSlice) error {
	return func(all []discovery.EndpointSlice) error { return errors.Join(first(all), second(all)) }
}

func (c *cluster) deleteSlice(name string) {
	c.T.Helper()
	err := c.Admin.DiscoveryV1().EndpointSlices(c.Namespace).Delete(c.T.Context(), name, metav1.DeleteOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
}

func (c *cluster) slice(ctx context.Context, name string) (*discovery.EndpointSlice, error) {
	return c.Admin.DiscoveryV1().EndpointSlices(c.Namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c *cluster) makeSlice(slice *discovery.EndpointSlice) *discovery.EndpointSlice {
	c.T.Helper()
	created, err := c.Admin.DiscoveryV1().EndpointSlices(c.Namespace).Create(c.T.Context(), slice, metav1.CreateOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	return created
}

func ips(i int) []string { return []string{fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)} }

func annotation(key, value string) func(*v1.Service) {
	return func(s *v1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, value) }
}

func traffic(distribution string) func(*v1.Service) {
	return func(s *v1.Service) {
		s.Spec.TrafficDistribution = nil
		if distribution != "" {
			s.Spec.TrafficDistribution = ptr.To(distribution)
		}
	}
}

// metric is a sample of the controller's registry, 0 when it is not there.
func (c *cluster) metric(name string, labels map[string]string) float64 {
	c.T.Helper()
	families, err := c.controller.Metrics.Gather()
	if err != nil {
		c.T.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	samples:
		for _, sample := range family.GetMetric() {
			for _, pair := range sample.GetLabel() {
				if want, ok := labels[pair.GetName()]; ok && want != pair.GetValue() {
					continue samples
				}
			}
			switch {
			case sample.Counter != nil:
				return sample.Counter.GetValue()
			case sample.Gauge != nil:
				return sample.Gauge.GetValue()
			case sample.Histogram != nil:
				return float64(sample.Histogram.GetSampleCount())
			}
		}
	}
	return 0
}
