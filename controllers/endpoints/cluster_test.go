package endpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	fixture "github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

// cluster is a world with node n1 where the controller runs.
type cluster struct {
	*fixture.World
	controller *harness.Instance
}

func start(t *testing.T) *cluster {
	t.Helper()
	return startWith(t, harness.Options{})
}

func startWith(t *testing.T, o harness.Options) *cluster {
	t.Helper()
	w := fixture.New(t, o)
	return &cluster{World: w, controller: w.Start(Descriptor(), nil)}
}

func batch(period time.Duration) *schema.EndpointsController {
	s := schema.EndpointsControllerSection().New().(*schema.EndpointsController)
	s.EndpointUpdatesBatchPeriod.Duration = period
	return s
}

func (c *cluster) get(ctx context.Context, name string) (*v1.Endpoints, error) {
	return c.Admin.CoreV1().Endpoints(c.Namespace).Get(ctx, name, metav1.GetOptions{})
}

// await waits until right accepts the Endpoints of a Service, and returns them.
func (c *cluster) await(service, what string, right func(*v1.Endpoints) error) *v1.Endpoints {
	c.T.Helper()
	var found *v1.Endpoints
	harness.Eventually(c.T, fixture.Soon, what, func(ctx context.Context) error {
		var err error
		if found, err = c.get(ctx, service); err != nil {
			return err
		}
		if err := right(found); err != nil {
			return fmt.Errorf("%w: %s", err, describe(found))
		}
		return nil
	})
	return found
}

func (c *cluster) awaitGone(service string) {
	c.T.Helper()
	harness.Eventually(c.T, fixture.Soon, "no Endpoints", func(ctx context.Context) error {
		_, err := c.get(ctx, service)
		return fixture.Gone(err)
	})
}

// describe subsets as READY | NOT READY : PORTS, each in order.
func describe(e *v1.Endpoints) string {
	var all []string
	for i := range e.Subsets {
		s := &e.Subsets[i]
		ips := func(addresses []v1.EndpointAddress) string {
			var out []string
			for j := range addresses {
				out = append(out, addresses[j].IP)
			}
			return strings.Join(out, " ")
		}
		var ports []string
		for _, port := range s.Ports {
			ports = append(ports, fmt.Sprintf("%s/%d/%s", port.Name, port.Port, port.Protocol))
		}
		slices.Sort(ports)
		all = append(all, ips(s.Addresses)+" | "+ips(s.NotReadyAddresses)+" : "+strings.Join(ports, " "))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// has wants these subsets, as describe says them, in order of the texts.
func has(want ...string) func(*v1.Endpoints) error {
	return func(e *v1.Endpoints) error {
		if describe(e) != strings.Join(want, "; ") {
			return fmt.Errorf("want %q", strings.Join(want, "; "))
		}
		return nil
	}
}

func labelled(want map[string]string) func(*v1.Endpoints) error {
	return func(e *v1.Endpoints) error {
		if !maps.Equal(e.Labels, want) {
			return fmt.Errorf("labels %v, want %v", e.Labels, want)
		}
		return nil
	}
}

func (c *cluster) patch(name, patch string) {
	c.T.Helper()
	_, err := c.Admin.CoreV1().Endpoints(c.Namespace).
		Patch(c.T.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
}

func (c *cluster) remove(name string) {
	c.T.Helper()
	if err := c.Admin.CoreV1().Endpoints(c.Namespace).Delete(c.T.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.T.Fatal(err)
	}
}

func (c *cluster) make(name string, annotations map[string]string) *v1.Endpoints {
	c.T.Helper()
	created, err := c.Admin.CoreV1().Endpoints(c.Namespace).Create(c.T.Context(), &v1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Subsets:    []v1.EndpointSubset{{Addresses: []v1.EndpointAddress{{IP: "10.7.7.7"}}, Ports: []v1.EndpointPort{{Port: 80}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.T.Fatal(err)
	}
	return created
}

// written waits for more writes than a number.
func (c *cluster) written(more int) {
	c.T.Helper()
	harness.Eventually(c.T, fixture.Soon, "a write", func(context.Context) error {
		if len(c.Writes(fixture.Endpoints)) <= more {
			return errors.New("none so far")
		}
		return nil
	})
}
