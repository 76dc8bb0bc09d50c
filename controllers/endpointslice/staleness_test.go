package endpointslice_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wheelhouse-project/wheelhouse/controllers/endpointslice"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	fixture "github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

// While the cache of slices is behind, no slice is made a second time, whatever
// happens to the Service, and whether the controller is restarted or not.
func TestStaleCacheIsNotActedUpon(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			c := start(t)
			c.MakePod("p1", "web", []string{"10.1.0.1"})
			c.controller.CatchUp() // the one slice is to list it
			release := c.Proxy.HoldWatches(fixture.Slices)
			c.MakeService("web")
			c.await("web", "the slice", lists("[10.1.0.1]RS"))
			ready := make(chan struct{})
			c.NoWrites(fixture.Slices, "patience", func() {
				go func() {
					defer close(ready)
					if restart {
						c.controller.Restart()
					}
				}()
				c.ChangeService("web", func(s *v1.Service) { s.Labels = map[string]string{"x": "y"} })
				c.SetPodStatus("p1", fixture.Ready(false))
			})
			release()
			<-ready
			c.await("web", "the changes, in the same slice", also(lists("[10.1.0.1]"), func(s *discovery.EndpointSlice) error {
				if s.Labels["x"] != "y" {
					return errors.New("no label")
				}
				return nil
			}))
			if creates := c.writes("create"); creates != 1 {
				t.Errorf("%d slices were created", creates)
			}
		})
	}
}

func (c *cluster) writes(verb string) int {
	count := 0
	for _, write := range c.Writes(fixture.Slices) {
		if write.Verb == verb {
			count++
		}
	}
	return count
}

// A slice that the controller has deleted is not believed to list what it
// listed, though the cache shows it for longer.
func TestADeletedSliceIsNotBelieved(t *testing.T) {
	t.Parallel()
	c := start(t, func(s *schema.EndpointSliceController) { s.MaxEndpointsPerSlice = 1 })
	c.MakeService("web")
	for i := range 2 {
		c.MakePod(fmt.Sprint("p", i), "web", ips(i))
	}
	c.await("web", "two slices", lists("[10.1.0.1]RS", "[10.1.0.2]RS"))
	c.Idle(c.controller)
	release := c.Proxy.HoldWatches(fixture.Slices)
	c.ChangePod("p1", func(pod *v1.Pod) { pod.Labels["app"] = "other" })
	c.await("web", "one slice", lists("[10.1.0.1]RS"))
	c.ChangePod("p1", func(pod *v1.Pod) { pod.Labels["app"] = "web" })
	c.await("web", "a new slice, while the cache still shows the old one", lists("[10.1.0.1]RS", "[10.1.0.2]RS"))
	release()
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "peace")
	c.await("web", "both slices", lists("[10.1.0.1]RS", "[10.1.0.2]RS"))
}

// A creation whose answer gets lost is found, not made again.
func TestALostAnswerMakesNoSecondSlice(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	var lost atomic.Bool
	stop := c.Proxy.After(func(r apiproxy.Request) {
		if r.Verb == "create" && r.Resource == fixture.Slices && r.Code == http.StatusCreated && !lost.Swap(true) {
			c.Proxy.Cut()
			c.Proxy.DelayWatches(fixture.Slices, time.Second)
			c.Proxy.Mend()
		}
	})
	c.MakeService("web")
	harness.Eventually(t, fixture.Soon, "the loss", func(context.Context) error {
		if !lost.Load() {
			return errors.New("no answer so far")
		}
		return nil
	})
	stop()
	c.await("web", "the slice", lists("[10.1.0.1]RS"))
	c.Idle(c.controller)
	c.await("web", "one slice", lists("[10.1.0.1]RS"))
	if creates := c.writes("create"); creates != 1 {
		t.Errorf("%d slices were created", creates)
	}
}

// Requests end with the reconcile, though the library that makes them gives
// them no context: a controller that is stopped in the middle of them says
// nothing about it on the Service, and its successor finishes the work.
func TestACancelledControllerReportsNothing(t *testing.T) {
	t.Parallel()
	c := start(t)
	for i := range 5 {
		name := fmt.Sprint("web", i)
		c.MakePod(name, name, ips(i))
		aborted := make(chan struct{})
		var begun atomic.Bool
		stop := c.Proxy.Before(func(r apiproxy.Request) {
			if r.Write() && r.Resource == fixture.Slices && !begun.Swap(true) {
				go func() {
					defer close(aborted)
					c.controller.Abort()
				}()
				if rand.IntN(2) == 0 {
					<-aborted // the request goes on when the controller has ended
				}
			}
		})
		c.MakeService(name)
		select {
		case <-aborted:
		case <-time.After(fixture.Soon):
			t.Fatal("no write")
		}
		stop()
		c.controller.Start()
		c.await(name, "the endpoint", total(1, 1, 100))
	}
	harness.Throughout(t, fixture.AWhile/4, "silence", func(ctx context.Context) error {
		// The API server itself warns of Services that its allocator has not heard of yet.
		ours := "type=" + v1.EventTypeWarning + ",source=" + endpointslice.Descriptor().EventComponent()
		events, err := c.Admin.CoreV1().Events(c.Namespace).List(ctx, metav1.ListOptions{FieldSelector: ours})
		if err == nil && len(events.Items) > 0 {
			return fmt.Errorf("events %+v", events.Items)
		}
		return err
	})
}

// A write that somebody else has overtaken is no failure of the Service.
func TestOvertakenWritesAreNotTold(t *testing.T) {
	t.Parallel()
	var log harness.Log
	c := startWith(t, harness.Options{Log: io.MultiWriter(t.Output(), &log)})
	refused := func(code int) {
		t.Helper()
		harness.Eventually(t, fixture.Soon, fmt.Sprint("answer ", code), func(context.Context) error {
			for _, write := range c.Writes(fixture.Slices) {
				if write.Code == code {
					return nil
				}
			}
			return errors.New("none so far")
		})
	}
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	c.MakeService("web")
	slice := c.await("web", "the slice", lists("[10.1.0.1]RS"))[0]
	c.Idle(c.controller)
	release := c.Proxy.HoldWatches(fixture.Slices)
	c.PatchSlice(slice.Name, `{"endpoints":[{"addresses":["10.9.9.9"]}]}`)
	c.SetPodStatus("p1", fixture.Ready(false))
	refused(http.StatusConflict)
	release()
	c.await("web", "the change", lists("[10.1.0.1]"))

	c.Idle(c.controller)
	release = c.Proxy.HoldWatches(fixture.Slices)
	c.deleteSlice(slice.Name)
	c.SetPodStatus("p1", fixture.Ready(true))
	refused(http.StatusNotFound)
	release()
	c.await("web", "another slice", lists("[10.1.0.1]RS"))
	if strings.Contains(log.String(), "level=ERROR") {
		t.Error("errors are logged")
	}
	if all, err := c.Events(t.Context(), "web", "FailedToUpdateEndpointSlices"); err != nil || len(all) > 0 {
		t.Errorf("events %v, %v", all, err)
	}
}

// A slice that somebody takes is not used for other ports, though the cache shows
// it as it was.
func TestASliceThatIsTakenMeanwhileIsNotReused(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.MakePod("p1", "web", []string{"10.1.0.1"})
	c.MakeService("web")
	slice := c.await("web", "the slice", lists("[10.1.0.1]RS"))[0]
	c.Idle(c.controller)
	release := c.Proxy.HoldWatches(fixture.Slices)
	updates := c.writes("update")
	c.PatchSlice(slice.Name, `{"metadata":{"labels":{"endpointslice.kubernetes.io/managed-by":"me"}}}`)
	c.ChangeService("web", func(s *v1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(9999) })
	harness.Eventually(t, fixture.Soon, "an attempt", func(context.Context) error {
		if c.writes("update") == updates {
			return errors.New("none so far")
		}
		return nil
	})
	release()
	c.await("web", "a new slice", lists("[10.1.0.1]RS"))
	taken, err := c.Admin.DiscoveryV1().EndpointSlices(c.Namespace).Get(t.Context(), slice.Name, metav1.GetOptions{})
	if err != nil || taken.Labels[discovery.LabelManagedBy] != "me" || *taken.Ports[0].Port != *slice.Ports[0].Port {
		t.Errorf("the slice of somebody else is %+v, %v", taken, err)
	}
}

// What the API server refuses is told of on the Service.
func TestFailuresAreTold(t *testing.T) {
	t.Parallel()
	c := start(t)
	stop := c.Proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == "create" && r.Resource == fixture.Slices },
		http.StatusUnprocessableEntity, 0)
	c.MakeService("web")
	harness.Eventually(t, fixture.Soon, "the event", func(ctx context.Context) error {
		all, err := c.Events(ctx, "web", "FailedToUpdateEndpointSlices")
		if err == nil && len(all) == 0 {
			return errors.New("none so far")
		}
		return err
	})
	stop()
	c.await("web", "the slice all the same", lists(""))
}
