package endpointslicemirroring

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	fixture "github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

// cluster is a world where the controller runs.
type cluster struct {
	*fixture.World
	controller *harness.Instance
}

func start(t *testing.T, changes ...func(*schema.EndpointSliceMirroringController)) *cluster {
	t.Helper()
	w := fixture.New(t, harness.Options{})
	return &cluster{World: w, controller: w.Start(Descriptor(), section(changes...))}
}

func section(changes ...func(*schema.EndpointSliceMirroringController)) *schema.EndpointSliceMirroringController {
	s := schema.EndpointSliceMirroringControllerSection().New().(*schema.EndpointSliceMirroringController)
	for _, change := range changes {
		change(s)
	}
	return s
}

func noSelector(s *v1.Service) { s.Spec.Selector = nil }

// handMade is a Service without selector.
func (c *cluster) handMade(name string) *v1.Service {
	c.T.Helper()
	return c.MakeService(name, noSelector)
}

// subset on ports, which have their number as name.
func subset(ready, notReady []string, ports ...int32) v1.EndpointSubset {
	var s v1.EndpointSubset
	for _, ip := range ready {
		s.Addresses = append(s.Addresses, v1.EndpointAddress{IP: ip})
	}
	for _, ip := range notReady {
		s.NotReadyAddresses = append(s.NotReadyAddresses, v1.EndpointAddress{IP: ip})
	}
	for _, port := range ports {
		s.Ports = append(s.Ports, v1.EndpointPort{Name: fmt.Sprint("p", port), Port: port, Protocol: v1.ProtocolTCP})
	}
	return s
}

func (c *cluster) makeEndpoints(name string, all ...v1.EndpointSubset) *v1.Endpoints {
	c.T.Helper()
	created, err := c.Admin.CoreV1().Endpoints(c.Namespace).Create(c.T.Context(),
		&v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: name}, Subsets: all}, metav1.CreateOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	return created
}

func (c *cluster) change(name string, change func(*v1.Endpoints)) {
	c.T.Helper()
	c.Retry(func() error {
		endpoints, err := c.Admin.CoreV1().Endpoints(c.Namespace).Get(c.T.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(endpoints)
		_, err = c.Admin.CoreV1().Endpoints(c.Namespace).Update(c.T.Context(), endpoints, metav1.UpdateOptions{})
		return err
	})
}

func (c *cluster) patch(name, patch string) {
	c.T.Helper()
	_, err := c.Admin.CoreV1().Endpoints(c.Namespace).
		Patch(c.T.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
}

func (c *cluster) deleteEndpoints(name string) {
	c.T.Helper()
	if err := c.Admin.CoreV1().Endpoints(c.Namespace).Delete(c.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.T.Fatal(err)
	}
}

func (c *cluster) await(name, what string, right func([]discovery.EndpointSlice) error) []discovery.EndpointSlice {
	c.T.Helper()
	return c.AwaitSlices(name, manager, what, right)
}

// lists wants one slice for each text: PORTS: ENDPOINTS, as servicefixture
// describes them, each in order.
func lists(want ...string) func([]discovery.EndpointSlice) error {
	return func(all []discovery.EndpointSlice) error {
		got := []string{}
		for i := range all {
			got = append(got, describe(&all[i]))
		}
		slices.Sort(got)
		want := slices.Sorted(slices.Values(want))
		if !slices.Equal(got, want) {
			return fmt.Errorf("%q, want %q", got, want)
		}
		return nil
	}
}

func describe(slice *discovery.EndpointSlice) string {
	var ports, endpoints []string
	for i := range slice.Ports {
		ports = append(ports, fmt.Sprint(ptr.Deref(slice.Ports[i].Port, 0)))
	}
	for i := range slice.Endpoints {
		endpoints = append(endpoints, fixture.DescribeEndpoint(&slice.Endpoints[i]))
	}
	slices.Sort(ports)
	slices.Sort(endpoints)
	return strings.Join(ports, " ") + ": " + strings.Join(endpoints, " ")
}

// also wants something of each slice.
func also(first func([]discovery.EndpointSlice) error, of func(*discovery.EndpointSlice) error) func([]discovery.EndpointSlice) error {
	return func(all []discovery.EndpointSlice) error {
		if err := first(all); err != nil {
			return err
		}
		for i := range all {
			if err := of(&all[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

func (c *cluster) deleteSlice(name string) {
	c.T.Helper()
	if err := c.Admin.DiscoveryV1().EndpointSlices(c.Namespace).Delete(c.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.T.Fatal(err)
	}
}
