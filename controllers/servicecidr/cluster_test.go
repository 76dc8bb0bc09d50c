package servicecidr_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestASecondRangeSetsAHeldOneFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("held", w.v4("1.0/24"))
	w.create("grows", w.v6(":/64"))
	w.ready("held", "grows")
	w.service("s", w.v4("1.7"))
	w.delete("held")
	w.held("held")
	w.patch("grows", fmt.Sprintf(`{"spec":{"cidrs":[%q,%q]}}`, w.v6(":/64"), w.v4("0.0/16")))
	w.gone("held")
}

// Whatever the cache shows when the grace period is over: a Service that it does
// not know needs its range as well.
func TestAnAddressThatIsNotSeenYetHoldsItsRange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("c2", w.v4("1.0/24"))
	w.ready("c2")
	release := w.Proxy.HoldWatches(ipAddresses)
	defer release()
	w.makeService("s", w.v4("1.7"))
	w.delete("c2")
	w.stays("c2")
	release()
	w.held("c2")
	w.stays("c2")
}

// Once a ServiceCIDR has lost the finalizer of the controller, it costs no requests
// however long others hold it.
func TestARangeThatOnlyOthersHoldIsNotLookedInto(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("c2", w.v4("1.0/24"))
	w.ready("c2")
	w.patch("c2", fmt.Sprintf(`{"metadata":{"finalizers":[%q,"example.com/hold"]}}`, finalizer))
	w.delete("c2")
	harness.Eventually(t, soon, "end of the finalizer", func(ctx context.Context) error {
		w.step(time.Second)
		cidr, err := w.get(ctx, "c2")
		if err == nil && slices.Contains(cidr.Finalizers, finalizer) {
			err = errors.New("it is there")
		}
		return err
	})
	lists := func(act func()) int {
		isList := func(r apiproxy.Request) bool { return r.Verb == "list" && r.Resource == ipAddresses }
		w.settled()
		before := len(w.Proxy.Requests(isList))
		for range 5 {
			act()
			w.settled()
		}
		return len(w.Proxy.Requests(isList)) - before
	}
	n := 0
	ours := lists(func() {})
	all := lists(func() {
		n++
		w.patch("c2", fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, n))
	})
	if all != ours {
		t.Errorf("%d lists by the controller", all-ours)
	}
	w.patch("c2", `{"metadata":{"finalizers":null}}`)
	w.gone("c2")
}

func TestAnAddressThatChangesHandsIsLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("c2", w.v4("1.0/24"))
	w.ready("c2")
	w.address(w.v4("1.7"), "ipallocator.k8s.io")
	w.delete("c2")
	w.held("c2")
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"someone"}}}`, networkingv1.LabelManagedBy)
	_, err := w.Admin.NetworkingV1().IPAddresses().Patch(t.Context(), w.v4("1.7"), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.gone("c2")
}

// isStatus tells whether a request writes the status of a ServiceCIDR.
func (w *world) isStatus(short string) func(apiproxy.Request) bool {
	return func(r apiproxy.Request) bool {
		return r.Verb == "patch" && r.Resource == serviceCIDRs && r.Subresource == "status" && r.Name == w.name(short)
	}
}

func TestAConditionThatCannotBeWrittenIsTold(t *testing.T) {
	t.Parallel()
	w := makeWorld(t, clock.RealClock{})
	stop := w.Proxy.Answer(w.isStatus("c2"), http.StatusForbidden, 0)
	w.create("c2", w.v4("1.0/24"))
	harness.Eventually(t, soon, "event", func(ctx context.Context) error {
		event, err := w.event(ctx, "c2")
		if err != nil {
			return err
		}
		if event.Type != "Warning" || event.Reason != "KubernetesServiceCIDRError" ||
			event.Message != "The ServiceCIDR Status can not be set to Ready=True" ||
			event.Source.Component != "service-cidr-controller" {
			return fmt.Errorf("event %+v", event)
		}
		return nil
	})
	stop()
	w.ready("c2")
}

func TestAServiceCIDRThatGoesAtOnceIsNoError(t *testing.T) {
	t.Parallel()
	w := makeWorld(t, clock.RealClock{})
	came, released := make(chan struct{}), make(chan struct{})
	isStatus := w.isStatus("c2")
	remove := w.Proxy.Before(func(r apiproxy.Request) {
		if isStatus(r) {
			close(came)
			<-released
		}
	})
	w.create("c2", w.v4("1.0/24"))
	select {
	case <-came:
	case <-time.After(soon):
		t.Fatal("the condition is not written")
	}
	remove()
	w.delete("c2")
	w.patch("c2", `{"metadata":{"finalizers":null}}`)
	w.gone("c2")
	close(released)
	harness.Eventually(t, soon, "answer", func(context.Context) error {
		if writes := w.writes("c2"); len(writes) != 2 || writes[1].Code != http.StatusNotFound {
			return fmt.Errorf("writes: %+v", writes)
		}
		return nil
	})
	w.settled()
	if status := w.controller.Work(); status.LastError != "" {
		t.Errorf("last error: %s", status.LastError)
	}
	if event, err := w.event(t.Context(), "c2"); err == nil {
		t.Errorf("event: %+v", event)
	}
}

func TestNothingIsWrittenWithoutNeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("c2", w.v4("1.0/24"))
	w.ready("c2")
	w.service("s", w.v4("1.7"))
	w.patch("c2", `{"metadata":{"labels":{"more":"labels"}}}`)
	w.controller.Restart()
	w.settled()
	if writes := w.writes("c2"); len(writes) != 2 {
		t.Errorf("writes for a finalizer and a condition: %+v", writes)
	}
	w.delete("c2")
	w.held("c2")
	w.controller.Restart()
	w.settled()
	if writes := w.writes("c2"); len(writes) != 3 {
		t.Errorf("writes for a finalizer and two conditions: %+v", writes)
	}
}
