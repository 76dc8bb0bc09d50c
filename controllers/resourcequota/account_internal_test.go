package resourcequota

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	testingclock "k8s.io/utils/clock/testing"
)

func list(quantities ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(quantities); i += 2 {
		l[corev1.ResourceName(quantities[i])] = resource.MustParse(quantities[i+1])
	}
	return l
}

func version(v string, used corev1.ResourceList) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "q", ResourceVersion: v},
		Status:     corev1.ResourceQuotaStatus{Hard: list("pods", "10", "cpu", "10"), Used: used},
	}
}

// books of the test: an account whose caches have reached everything.
type ledger struct {
	t     *testing.T
	clock *testingclock.FakePassiveClock
	*account
	// behind are versions that the caches have not reached.
	behind map[string]bool
}

func newLedger(t *testing.T, used corev1.ResourceList) *ledger {
	t.Helper()
	c := testingclock.NewFakePassiveClock(time.Unix(1_000_000, 0))
	return &ledger{t: t, clock: c, account: newAccount(c, version("1", used)), behind: map[string]bool{}}
}

func (l *ledger) pass(d time.Duration) { l.clock.SetTime(l.clock.Now().Add(d)) }

// held amounts come to be want.
func (l *ledger) held(want corev1.ResourceList) {
	l.t.Helper()
	_, holds := l.statement(func(_ corev1.ResourceName, c *charge) bool { return !l.behind[c.version] })
	got := corev1.ResourceList{}
	for name, h := range holds {
		if h.amount.Sign() > 0 {
			got[name] = h.amount
		}
	}
	if !quota.Equals(got, want) {
		l.t.Errorf("held %v, want %v", got, want)
	}
}

func TestAChargeIsHeldUntilItsObjectIsSeen(t *testing.T) {
	t.Parallel()
	l := newLedger(t, nil)
	l.held(list())
	l.update(version("2", list("pods", "2", "cpu", "3")))
	l.held(list("pods", "2", "cpu", "3"))
	l.landed(list("pods", "1", "cpu", "1"))
	l.held(list("pods", "1", "cpu", "2"))
	l.update(version("3", list("pods", "3", "cpu", "4")))
	l.landed(list("pods", "1", "cpu", "2"))
	l.held(list("pods", "1", "cpu", "1"))
	l.landed(list("pods", "1", "cpu", "1"))
	l.held(list())
}

func TestAChargeWithoutAnObjectIsHeldForATime(t *testing.T) {
	t.Parallel()
	l := newLedger(t, nil)
	l.update(version("2", list("pods", "1")))
	l.pass(landing / 2)
	l.update(version("3", list("pods", "3")))
	l.held(list("pods", "3"))
	l.pass(landing / 2)
	l.held(list("pods", "2"))
	l.pass(landing / 2)
	l.held(list())
	if len(l.charges) > 0 {
		t.Errorf("%d charges are kept", len(l.charges))
	}
}

func TestAChargeIsHeldWhileNoCacheHasReachedIt(t *testing.T) {
	t.Parallel()
	l := newLedger(t, nil)
	l.update(version("2", list("pods", "1")))
	l.behind["2"] = true
	l.pass(10 * landing)
	l.held(list("pods", "1"))
	_, holds := l.statement(func(corev1.ResourceName, *charge) bool { return false })
	if h := holds["pods"]; h.since.IsZero() || !h.until.IsZero() {
		t.Errorf("hold %+v waits for time instead of the cache", h)
	}
	delete(l.behind, "2")
	l.held(list())
}

// A quota of which nothing is given back may not be counted for a long time.
func TestSettledChargesAreNotKept(t *testing.T) {
	t.Parallel()
	l := newLedger(t, nil)
	for i := range 10 {
		used := list("pods", fmt.Sprint(i+1), "cpu", fmt.Sprint(2*i+2))
		if i%2 == 0 {
			l.update(version(fmt.Sprint(i+2), used))
			l.landed(list("pods", "1", "cpu", "2"))
		} else {
			l.landed(list("pods", "1", "cpu", "2"))
			l.update(version(fmt.Sprint(i+2), used))
		}
		l.pass(early)
	}
	if len(l.charges) > 0 {
		t.Errorf("%d charges are kept", len(l.charges))
	}
}

func TestAConflictWaitsForTheNewerVersion(t *testing.T) {
	t.Parallel()
	l := newLedger(t, nil)
	old := l.seen()
	due := func(q *corev1.ResourceQuota) bool {
		due, _ := l.update(q)
		return due
	}
	if due(version("2", nil)) {
		t.Error("nobody waits")
	}
	if !l.conflicted(old) {
		t.Error("the newer version was seen")
	}
	if l.conflicted(l.seen()) {
		t.Error("no newer version was seen")
	}
	if !due(version("3", nil)) || due(version("4", nil)) {
		t.Error("the next version is waited for, and no other")
	}
}

func TestWhatNobodyWaitsForIsGivenBackOnceASecond(t *testing.T) {
	t.Parallel()
	roomy, half := list("pods", "4", "cpu", "1"), list("pods", "4", "cpu", "5")
	l := newLedger(t, roomy)
	owes := func(want time.Duration) {
		t.Helper()
		if got := l.owe(); got != want {
			t.Errorf("waits %s, want %s", got, want)
		}
	}
	due := func(q *corev1.ResourceQuota) bool {
		due, _ := l.update(q)
		return due
	}
	owes(gather) // the first at once
	l.wrote("2")
	l.pass(pace / 4)
	owes(pace * 3 / 4)
	if due(version("3", roomy)) {
		t.Error("counted although there is time")
	}
	if !due(version("4", half)) {
		t.Error("half of a limit is used, and what was freed still waits for its turn")
	}
	owes(gather)
	l.statement(func(corev1.ResourceName, *charge) bool { return true })
	if due(version("5", half)) {
		t.Error("nothing was freed since the last count")
	}
	l.update(version("6", roomy))
	l.pass(pace)
	owes(gather)
}

func TestShort(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hard, used corev1.ResourceList
		want       bool
	}{
		"nothing":                {nil, nil, false},
		"less than half is used": {list("pods", "10"), list("pods", "4"), false},
		"half is used":           {list("pods", "10"), list("pods", "5"), true},
		"half of one is used":    {list("pods", "10", "cpu", "1"), list("pods", "4", "cpu", "500m"), true},
		"more than all is used":  {list("pods", "0"), list("pods", "1"), true},
		"nothing is allowed":     {list("pods", "0"), list("pods", "0"), false},
		"no limit":               {list("cpu", "1"), list("pods", "1"), false},
	} {
		q := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Hard: test.hard, Used: test.used}}
		if got := short(q); got != test.want {
			t.Errorf("%s: short %v", name, got)
		}
	}
}

func TestWhatIsFoundMayBeUnderWay(t *testing.T) {
	t.Parallel()
	l := newLedger(t, list("pods", "4"))
	l.held(list("pods", "4"))
	l.landed(list("pods", "1"))
	l.held(list("pods", "3"))
	l.pass(landing)
	l.held(list())
}

func TestAnObjectMayBeSeenBeforeItsCharge(t *testing.T) {
	t.Parallel()
	l := newLedger(t, nil)
	if l.landed(list("pods", "1")) {
		t.Error("its charge is known")
	}
	if _, charged := l.update(version("2", list("pods", "2"))); !charged {
		t.Error("it may have gone meanwhile, so that a count has to follow")
	}
	l.held(list("pods", "1"))
	// But not long before: then it is another one's.
	l.pass(landing)
	l.landed(list("pods", "1"))
	l.pass(early)
	l.update(version("3", list("pods", "3")))
	l.held(list("pods", "1"))
	if len(l.credits) > 0 {
		t.Errorf("%d credits are kept", len(l.credits))
	}
}

func TestOwnWritesAreNoCharges(t *testing.T) {
	t.Parallel()
	l := newLedger(t, nil)
	l.wrote("2")
	if _, charged := l.update(version("2", list("pods", "2"))); charged {
		t.Error("an own write is a charge")
	}
	l.held(list())
	// The event may come before the answer.
	l.update(version("3", list("pods", "5")))
	l.held(list("pods", "3"))
	l.wrote("3")
	l.held(list())
}

func TestGivingBackIsNoCharge(t *testing.T) {
	t.Parallel()
	l := newLedger(t, nil)
	l.update(version("2", list("pods", "5", "cpu", "2")))
	l.pass(landing)
	l.update(version("3", list("pods", "3", "cpu", "3")))
	l.held(list("cpu", "1"))
}

func TestAnotherQuotaOfTheNameHasAnotherAccount(t *testing.T) {
	t.Parallel()
	b := newBooks(testingclock.NewFakePassiveClock(time.Now()))
	first, second := version("1", nil), version("9", nil)
	first.UID, second.UID = "a", "b"
	b.open(first)
	old := b.get(newAccount(b.clock, first).key)
	old.landed(list("pods", "1"))
	b.close(old.key)
	b.open(second)
	if a := b.get(old.key); a == old || a.seen() != second || len(a.credits) > 0 {
		t.Errorf("account %+v", a)
	}
	b.close(old.key)
	if len(b.all()) > 0 || len(b.in("ns")) > 0 || len(b.byNamespace) > 0 {
		t.Errorf("accounts are left: %v", b.byNamespace)
	}
}
