package resourcequota

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

const (
	// landing is how long the creation of an object may take after its quota was
	// charged. The API server charges the other quotas of the namespace and writes
	// the object next, within milliseconds; a charge that no object has followed
	// in this time is taken to be for none.
	landing = 5 * time.Second
	// early is how much sooner than the charge its object may be seen: the two
	// come through different watches.
	early = time.Second
)

// charge is a rise of status.used that somebody else has made: admission, for
// an object that it lets pass.
type charge struct {
	at time.Time
	// version of the quota that has it.
	version string
	amount  corev1.ResourceList
	// open is the part of amount for which no object has been seen.
	open corev1.ResourceList
}

// account of one quota: the charges whose objects may be under way. What they
// are for must stay used although no cache shows it yet.
//
// An object that is seen settles the oldest charges, as amounts are all that
// links the two.
type account struct {
	key   work.ObjectName
	clock clock.PassiveClock
	// counting is held by the worker that counts the quota: there are two queues.
	counting sync.Mutex

	mu sync.Mutex
	// quota as the last event has shown it. It must not be changed.
	quota *corev1.ResourceQuota
	// charges, the oldest first. credits are objects that were seen before their charge.
	charges, credits []*charge
	// written is the version of the last own write, which is no charge, and
	// writtenAt its time.
	written   string
	writtenAt time.Time
	// owing is true while something freed waits for its turn.
	owing bool
	// limited is when limits last became other ones: what was created before is
	// not charged, and may have been missed by the first count. Zero when a later
	// count has made sure.
	limited time.Time
	// outdated is true when a write has failed because quota is not the newest version.
	outdated bool
	// incomplete is true when the last count had to leave something out.
	incomplete bool
}

// newAccount of a quota as it is found. Nobody knows how much of what is used
// is for objects under way, so that all of it is taken to be.
func newAccount(c clock.PassiveClock, q *corev1.ResourceQuota) *account {
	a := &account{key: cache.MetaObjectToName(q), clock: c, quota: q}
	if len(q.Status.Used) > 0 {
		a.charges = []*charge{{at: c.Now(), version: q.ResourceVersion, amount: q.Status.Used, open: maps.Clone(q.Status.Used)}}
	}
	return a
}

// update to the quota's next version. It tells whether that is to be counted at
// once, as a write has failed for want of it, or it leaves no time for what waits
// for its turn; and whether it has a charge, and is to be counted when that is old.
// The object may have gone before its charge is seen, or never come.
func (a *account) update(q *corev1.ResourceQuota) (due, charged bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	due, a.outdated = a.outdated || a.owing && short(q), false
	rise := risen(a.quota.Status.Used, q.Status.Used)
	a.quota = q
	if len(rise) == 0 || q.ResourceVersion == a.written {
		return due, false
	}
	made := &charge{at: a.clock.Now(), version: q.ResourceVersion, amount: rise, open: maps.Clone(rise)}
	a.expire()
	for _, credit := range a.credits {
		settle(made.open, credit.open)
	}
	if len(made.open) > 0 {
		a.charges = append(a.charges, made)
	}
	return due, true
}

// owe something that is freed, and return how long it may wait to be given back.
func (a *account) owe() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	rest := pace - a.clock.Since(a.writtenAt)
	if rest <= gather || short(a.quota) {
		return gather
	}
	a.owing = true
	return rest
}

// short tells whether half of a limit, or more, is used.
func short(q *corev1.ResourceQuota) bool {
	for name, used := range q.Status.Used {
		twice := used.DeepCopy()
		twice.Add(used)
		if hard, ok := q.Status.Hard[name]; ok && used.Sign() > 0 && twice.Cmp(hard) >= 0 {
			return true
		}
	}
	return false
}

// conflicted tells that q could not be written, as the quota has a newer
// version, and returns whether that has been seen meanwhile. If not, update
// will tell.
func (a *account) conflicted(q *corev1.ResourceQuota) (seen bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quota.ResourceVersion != q.ResourceVersion {
		return true
	}
	a.outdated = true
	return false
}

// wrote tells of an own write, whose event may have come already.
func (a *account) wrote(version string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written, a.writtenAt = version, a.clock.Now()
	a.charges = without(a.charges, func(c *charge) bool { return c.version == version })
}

// landed tells of an object that was created, or has grown, by an amount. It
// returns whether its charge was known.
func (a *account) landed(amount corev1.ResourceList) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expire()
	left := maps.Clone(amount)
	for _, c := range a.charges {
		settle(c.open, left)
		if len(left) == 0 {
			break
		}
	}
	// A settled charge holds nothing, and there may be no count for a long time.
	a.charges = without(a.charges, func(c *charge) bool { return len(c.open) == 0 })
	if len(left) > 0 {
		a.credits = append(a.credits, &charge{at: a.clock.Now(), open: left})
	}
	return len(left) == 0
}

// expire credits whose charge will not come.
func (a *account) expire() {
	a.credits = without(a.credits, func(c *charge) bool { return a.clock.Since(c.at) >= early })
}

// seen returns the quota as the last event has shown it.
func (a *account) seen() *corev1.ResourceQuota {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.quota
}

// hold is what must stay used of one name for objects under way.
type hold struct {
	amount resource.Quantity
	// until the first of its charges is old enough; zero when all are.
	until time.Time
	// since the last of its old charges was seen, which counts on because no
	// cache has reached it; zero when there is none.
	since time.Time
}

// statement is the quota with what must stay used. Reached tells whether the
// caches that a name is counted from hold all that was created before a charge.
// It must be asked for before the caches are.
func (a *account) statement(reached func(corev1.ResourceName, *charge) bool) (*corev1.ResourceQuota, map[corev1.ResourceName]hold) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owing = false
	now := a.clock.Now()
	holds := map[corev1.ResourceName]hold{}
	a.charges = without(a.charges, func(c *charge) bool {
		young := now.Sub(c.at) < landing
		live := young
		for name := range c.amount {
			if !young && reached(name, c) {
				continue
			}
			live = true
			h := holds[name]
			if open, ok := c.open[name]; ok {
				h.amount.Add(open)
			}
			if young && h.until.IsZero() {
				h.until = c.at.Add(landing)
			} else if !young {
				h.since = c.at
			}
			holds[name] = h
		}
		return !live
	})
	return a.quota, holds
}

// risen is by how much names of after are more than before.
func risen(before, after corev1.ResourceList) corev1.ResourceList {
	rise := corev1.ResourceList{}
	for name, quantity := range after {
		by := quantity.DeepCopy()
		by.Sub(before[name])
		if by.Sign() > 0 {
			rise[name] = by
		}
	}
	return rise
}

// settle takes off both what they have in common.
func settle(a, b corev1.ResourceList) {
	for name, x := range a {
		y, ok := b[name]
		if !ok {
			continue
		}
		common := x.DeepCopy()
		if y.Cmp(common) < 0 {
			common = y.DeepCopy()
		}
		reduce(a, name, common)
		reduce(b, name, common)
	}
}

func reduce(list corev1.ResourceList, name corev1.ResourceName, by resource.Quantity) {
	left := list[name].DeepCopy()
	left.Sub(by)
	if left.Sign() > 0 {
		list[name] = left
	} else {
		delete(list, name)
	}
}

func without(charges []*charge, is func(*charge) bool) []*charge {
	kept := charges[:0]
	for _, c := range charges {
		if !is(c) {
			kept = append(kept, c)
		}
	}
	clear(charges[len(kept):])
	return kept
}

// counted tells whether the last count had to leave something out.
func (a *account) counted(incomplete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.incomplete = incomplete
}

func (a *account) setLimited(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limited = at
}

func (a *account) limitedAt() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.limited
}
