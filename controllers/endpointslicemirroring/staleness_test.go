package endpointslicemirroring

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
	fixture "github.com/wheelhouse-project/wheelhouse/test/servicefixture"
)

func (c *cluster) creates() int {
	count := 0
	for _, write := range c.Writes(fixture.Slices) {
		if write.Verb == "create" {
			count++
		}
	}
	return count
}

// While the cache of slices is behind, no mirror is made a second time, whether
// the controller is restarted or not.
func TestStaleCacheIsNotActedUpon(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			t.Parallel()
			c := start(t)
			release := c.Proxy.HoldWatches(fixture.Slices)
			c.handMade("db")
			c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
			c.await("db", "the mirror", lists("80: [10.0.0.1]R"))
			ready := make(chan struct{})
			c.NoWrites(fixture.Slices, "patience", func() {
				go func() {
					defer close(ready)
					if restart {
						c.controller.Restart()
					}
				}()
				c.change("db", func(e *v1.Endpoints) { e.Subsets[0].Addresses[0].IP = "10.0.0.2" })
			})
			release()
			<-ready
			c.await("db", "the change", lists("80: [10.0.0.2]R"))
			if creates := c.creates(); creates != 1 {
				t.Errorf("%d slices were created", creates)
			}
		})
	}
}

// At a start no mirror is removed because the cache of Services is behind that of slices.
func TestAMirrorOfAServiceThatIsNotSeenYetStays(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("early")
	c.makeEndpoints("early", subset([]string{"10.0.0.1"}, nil, 80))
	early := c.await("early", "the mirror", lists("80: [10.0.0.1]R"))[0]
	c.controller.Stop() // the caches live on for a while
	release := c.Proxy.HoldWatches(schema.GroupResource{Resource: "services"})
	c.handMade("late")
	endpoints := c.makeEndpoints("late", subset([]string{"10.0.0.1"}, nil, 80))
	late := early.DeepCopy()
	late.ObjectMeta = metav1.ObjectMeta{
		Name: "late-1", Labels: map[string]string{discovery.LabelServiceName: "late", discovery.LabelManagedBy: manager},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(endpoints, v1.SchemeGroupVersion.WithKind("Endpoints"))},
	}
	late, err := c.Admin.DiscoveryV1().EndpointSlices(c.Namespace).Create(t.Context(), late, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.NoWrites(fixture.Slices, "the mirror", c.controller.Restart)
	c.NoWrites(fixture.Slices, "the mirror", func() {
		release()
		c.Idle(c.controller)
	})
	if after := c.await("late", "the mirror", lists("80: [10.0.0.1]R"))[0]; after.UID != late.UID {
		t.Errorf("slice %s was replaced by %s", late.Name, after.Name)
	}
}

// A mirror that was deleted is not believed to be there, though the cache shows it for longer.
func TestADeletedSliceIsNotBelieved(t *testing.T) {
	t.Parallel()
	c := start(t)
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	old := c.await("db", "the mirror", lists("80: [10.0.0.1]R"))[0]
	c.Idle(c.controller)
	release := c.Proxy.HoldWatches(fixture.Slices)
	c.patch("db", `{"metadata":{"labels":{"endpointslice.kubernetes.io/skip-mirror":"true"}}}`)
	c.await("db", "no mirror", lists())
	c.patch("db", `{"metadata":{"labels":{"endpointslice.kubernetes.io/skip-mirror":"false"}}}`)
	c.await("db", "another mirror", also(lists("80: [10.0.0.1]R"), func(s *discovery.EndpointSlice) error {
		if s.UID == old.UID {
			return errors.New("it is the old one")
		}
		return nil
	}))
	release()
	c.Idle(c.controller)
	c.NoWrites(fixture.Slices, "peace")
}

// A creation whose answer gets lost is found, not made again.
func TestALostAnswerMakesNoSecondSlice(t *testing.T) {
	t.Parallel()
	c := start(t)
	var lost atomic.Bool
	stop := c.Proxy.After(func(r apiproxy.Request) {
		if r.Verb == "create" && r.Resource == fixture.Slices && r.Code == http.StatusCreated && !lost.Swap(true) {
			c.Proxy.Cut()
			c.Proxy.DelayWatches(fixture.Slices, time.Second)
			c.Proxy.Mend()
		}
	})
	c.handMade("db")
	c.makeEndpoints("db", subset([]string{"10.0.0.1"}, nil, 80))
	harness.Eventually(t, fixture.Soon, "the loss", func(context.Context) error {
		if !lost.Load() {
			return errors.New("no answer so far")
		}
		return nil
	})
	stop()
	c.Idle(c.controller)
	c.await("db", "one mirror", lists("80: [10.0.0.1]R"))
	if creates := c.creates(); creates != 1 {
		t.Errorf("%d slices were created", creates)
	}
}
