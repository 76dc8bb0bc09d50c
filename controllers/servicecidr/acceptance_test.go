package servicecidr_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/servicecidr"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// It is not parallel: the API server gives Services addresses of any range
// that is ready, another test's too.
func TestAcceptance01_ANewServiceCIDRIsProtectedAndReady(t *testing.T) {
	w := makeWorld(t, clock.RealClock{})
	w.create("c2", w.v4("1.0/24"))
	w.ready("c2")
	second := netip.MustParsePrefix(w.v4("1.0/24"))
	harness.Eventually(t, soon, "service with an address of the second range", func(ctx context.Context) error {
		service, err := w.Admin.CoreV1().Services(w.namespace).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if address, err := netip.ParseAddr(service.Spec.ClusterIP); err != nil || !second.Contains(address) {
			return fmt.Errorf("the last one has %s: %w", service.Spec.ClusterIP, err)
		}
		return nil
	})
	if writes := w.writes("c2"); len(writes) != 2 {
		t.Errorf("writes: %+v", writes)
	}
	services, err := w.Admin.CoreV1().Services(w.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range services.Items {
		w.deleteService(services.Items[i].Name)
	}
}

func TestAcceptance02_AnUnusedServiceCIDRGoesAfterTheGracePeriod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("c2", w.v4("1.0/24"))
	w.ready("c2")
	const grace, late = 10 * time.Second, 5 * time.Second
	// A reconcile that has read the time before it is set waits by that time, so it is set before the deletion as well.
	w.clock.SetTime(time.Now().Truncate(time.Second).Add(grace - time.Millisecond))
	w.delete("c2")
	cidr, err := w.get(t.Context(), "c2")
	if err != nil {
		t.Fatal(err)
	}
	due := cidr.DeletionTimestamp.Add(grace)
	w.clock.SetTime(due.Add(-time.Millisecond))
	harness.Throughout(t, aWhile, "grace period", func(ctx context.Context) error {
		_, err := w.get(ctx, "c2")
		return err
	})
	if cidr, err = w.get(t.Context(), "c2"); err != nil {
		t.Fatal(err)
	}
	if err := says(cidr, true); err != nil {
		t.Errorf("the condition has changed in the grace period: %v", err)
	}
	harness.Eventually(t, soon, "end of c2", func(ctx context.Context) error {
		if w.clock.Now().Before(due.Add(late)) {
			w.step(100 * time.Millisecond)
		}
		return w.isGone(ctx, "c2")
	})
	if writes := w.writes("c2"); len(writes) != 3 {
		t.Errorf("writes: %+v", writes)
	}
}

// labelDefault makes a world see the ServiceCIDR of the API server too.
func labelDefault(t *testing.T, w *world, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, namedByTest, value)
	_, err := w.Admin.NetworkingV1().ServiceCIDRs().Patch(t.Context(), "kubernetes", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAcceptance03_AnEqualRangeIsNotNeeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "default")
	labelDefault(t, w, "default")
	harness.Eventually(t, soon, "protection of the default range", func(ctx context.Context) error {
		cidr, err := w.Admin.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return says(cidr, true)
	})
	w.create("c1", defaultRange)
	w.ready("c1")
	w.delete("c1")
	w.gone("c1")
}

func TestAcceptance04_AServiceHoldsTheLastRangeOfItsAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("c2", w.v4("1.0/24"))
	w.ready("c2")
	w.service("s", w.v4("1.7"))
	w.create("c3", w.v4("0.0/16"))
	w.ready("c3")
	w.delete("c2")
	w.gone("c2")
	w.delete("c3")
	w.held("c3")
	w.stays("c3")
	w.deleteService("s")
	w.gone("c3")
	if _, err := w.event(t.Context(), "c3"); err == nil {
		t.Error("there is an event about a range that is held")
	}
}

func TestAcceptance05_AWiderRangeSetsAHeldOneFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("c3", w.v4("0.0/16"))
	w.ready("c3")
	w.service("s", w.v4("1.7"))
	w.delete("c3")
	w.held("c3")
	w.create("c4", w.v4("0.0/15"))
	w.gone("c3")
	w.ready("c4")
}

func TestAcceptance06_TheDefaultRangeIsHeld(t *testing.T) {
	t.Parallel()
	cp, err := controlplane.Start(t.Context(), options) // its range stays terminating
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	fake := clocktesting.NewFakeClock(time.Now())
	engine := harness.New(t, cp, harness.Options{WholeCluster: true, Clock: fake})
	engine.Start(servicecidr.Descriptor(), nil)
	cidrs := engine.Admin.NetworkingV1().ServiceCIDRs()
	wait := func(ready bool) {
		t.Helper()
		harness.Eventually(t, soon, fmt.Sprintf("condition, ready %t", ready), func(ctx context.Context) error {
			fake.Step(time.Millisecond)
			cidr, err := cidrs.Get(ctx, "kubernetes", metav1.GetOptions{})
			if err != nil {
				return err
			}
			return says(cidr, ready)
		})
	}
	wait(true)
	if err := cidrs.Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(false)
	fake.Step(time.Hour)
	harness.Throughout(t, aWhile, "held default range", func(ctx context.Context) error {
		cidr, err := cidrs.Get(ctx, "kubernetes", metav1.GetOptions{})
		if err != nil {
			return err
		}
		return says(cidr, false)
	})
}

func TestAcceptance07_WhatIsRemovedByHandIsPutBack(t *testing.T) {
	t.Parallel()
	w := makeWorld(t, clock.RealClock{})
	w.create("c2", w.v4("1.0/24"))
	w.ready("c2")
	w.patch("c2", `{"metadata":{"finalizers":null}}`)
	w.ready("c2")
	w.patch("c2", `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Tired","message":"by hand",`+
		`"lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`, "status")
	w.ready("c2")
	cidr, err := w.get(t.Context(), "c2")
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range cidr.Status.Conditions {
		if condition.LastTransitionTime.Year() == 2026 && condition.LastTransitionTime.Month() == time.January {
			t.Errorf("a condition that changed has the time of another change: %+v", condition)
		}
	}
}

func TestAcceptance08_AddressesOfOthersHoldNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("c2", w.v4("1.0/24"))
	w.ready("c2")
	w.address(w.v4("1.7"), "someone")
	// Nor do addresses that no Service can have.
	w.address(w.v4("1.0"), "ipallocator.k8s.io")
	w.address(w.v4("1.255"), "ipallocator.k8s.io")
	w.delete("c2")
	w.gone("c2")
}

func TestAcceptance09_BothRangesOfADualStackOneCount(t *testing.T) {
	t.Parallel()
	for _, used := range []bool{true, false} {
		t.Run(fmt.Sprintf("used=%t", used), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.create("wide", w.v4("0.0/16"))
			w.create("d", w.v4("1.0/24"), w.v6(":/64"))
			w.ready("wide", "d")
			if used {
				w.address(w.v6(":7"), "ipallocator.k8s.io")
			}
			w.delete("d")
			if used {
				w.held("d")
				w.stays("d")
				w.deleteAddress(w.v6(":7"))
			}
			w.gone("d")
		})
	}
}

func TestAcceptance10_ADeletionWhileStoppedIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("c2", w.v4("1.0/24"))
	w.ready("c2")
	w.service("s", w.v4("1.7"))
	w.controller.Stop()
	w.delete("c2")
	w.controller.Start()
	w.held("c2")
	w.stays("c2")
}

// leaveTogether deletes two ServiceCIDRs at once. The second deletion may be
// seen after the first one was judged; the grace period is there for that.
func (w *world) leaveTogether() {
	w.t.Helper()
	w.delete("a")
	w.delete("b")
	w.held("b") // so that both deletions have been seen
	harness.Eventually(w.t, soon, "both held", func(ctx context.Context) error {
		w.step(time.Second)
		for _, short := range []string{"a", "b"} {
			cidr, err := w.get(ctx, short)
			if err != nil {
				return err
			}
			if err := says(cidr, false); err != nil {
				return fmt.Errorf("%s: %w", short, err)
			}
		}
		return nil
	})
}

func TestAcceptance11_RangesThatLeaveTogetherAreBothHeld(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]string{"equal": "1.0/24", "nested": "0.0/16"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.create("a", w.v4("1.0/24"))
			w.create("b", w.v4(other))
			w.ready("a", "b")
			w.service("s", w.v4("1.7"))
			w.leaveTogether()
			w.stays("a")
			w.stays("b")
			w.deleteService("s")
			w.gone("a", "b")
		})
	}
}

func TestAcceptance11_ALiveRangeSetsBothFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create("a", w.v4("1.0/24"))
	w.create("b", w.v4("1.0/24"))
	w.ready("a", "b")
	w.service("s", w.v4("1.7"))
	w.leaveTogether()
	w.create("c", w.v4("0.0/16"))
	w.ready("c")
	w.gone("a", "b")
}
