package work

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// initialShare is how many keys of live events may overtake the keys of
// initial lists before one of these has its turn, so that neither starves.
const initialShare = 7

// lanes is the storage of a workqueue. Keys of initial lists wait in a lane of
// their own behind those of live events; a key that a live event touches changes over.
//
// The workqueue calls Push, Touch, Len and Pop under its own lock and tells
// them nothing but the key. So which lane a key is added for is noted with
// willAdd just before. When the same key is added from two sides at the same
// instant, a note may be used up by the other addition; the key is then in the
// live lane, never wrongly behind.
type lanes[K comparable] struct {
	now func() time.Time

	mu            sync.Mutex
	live, initial list.List
	waiting       map[K]*list.Element
	// noted lanes of additions that the workqueue has not passed on yet, among
	// them those of keys that are added again while they are reconciled.
	noted map[K]lane
	// overtaken counts live keys handed out while initial ones waited.
	overtaken int
	// taken was handed out and has not begun yet; nil when there is none.
	taken *entry[K]
	// toNext gets the live keys that come too late for the workqueue; nil before leave.
	toNext func(keys map[K]struct{})
}

type lane bool

const (
	liveLane    lane = false
	initialLane lane = true
)

type entry[K comparable] struct {
	key   K
	lane  lane
	since time.Time
}

func newLanes[K comparable](now func() time.Time) *lanes[K] {
	return &lanes[K]{now: now, waiting: map[K]*list.Element{}, noted: map[K]lane{}}
}

var _ workqueue.Queue[string] = (*lanes[string])(nil)

// willAdd notes that key is about to be added for to.
func (l *lanes[K]) willAdd(key K, to lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.toNext != nil {
		if to == liveLane {
			l.toNext(map[K]struct{}{key: {}})
		}
		return
	}
	if earlier, ok := l.noted[key]; ok && earlier == liveLane {
		return
	}
	l.noted[key] = to
}

// takeNote returns the noted lane of key, the live one without a note: delayed
// additions and retries have none.
func (l *lanes[K]) takeNote(key K) lane {
	to := l.noted[key]
	delete(l.noted, key)
	return to
}

// Push adds a key that does not wait yet.
func (l *lanes[K]) Push(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &entry[K]{key: key, lane: l.takeNote(key), since: l.now()}
	l.waiting[key] = l.list(e.lane).PushBack(e)
}

// Touch is told that a key that waits was added again.
func (l *lanes[K]) Touch(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to := l.takeNote(key)
	element, ok := l.waiting[key]
	if !ok || to == initialLane {
		return
	}
	if e := element.Value.(*entry[K]); e.lane == initialLane {
		l.initial.Remove(element)
		e.lane = liveLane
		l.waiting[key] = l.live.PushBack(e)
	}
}

// Len is the number of keys that wait.
func (l *lanes[K]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// Pop takes the next key. The workqueue calls it only when there is one.
func (l *lanes[K]) Pop() K {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := &l.live
	switch {
	case l.initial.Len() == 0:
		l.overtaken = 0
	case l.live.Len() == 0 || l.overtaken == initialShare:
		from = &l.initial
		l.overtaken = 0
	default:
		l.overtaken++
	}
	e := from.Remove(from.Front()).(*entry[K])
	delete(l.waiting, e.key)
	l.taken = e
	return e.key
}

// begun is told that the key that was handed out last waits no longer.
func (l *lanes[K]) begun() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = nil
}

// leave gives toNext the keys of the live lane, and those noted for it, which the
// workqueue took no more as it was shut down. Later ones get there at once.
func (l *lanes[K]) leave(toNext func(keys map[K]struct{})) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.toNext = toNext
	keys := make(map[K]struct{}, l.live.Len())
	for element := l.live.Front(); element != nil; element = element.Next() {
		keys[element.Value.(*entry[K]).key] = struct{}{}
	}
	for key, to := range l.noted {
		if to == liveLane {
			keys[key] = struct{}{}
		}
	}
	toNext(keys)
}

func (l *lanes[K]) list(of lane) *list.List {
	if of == initialLane {
		return &l.initial
	}
	return &l.live
}

// depth returns how many keys wait, among them one that was handed out and has
// not begun, how many of them in the initial lane, and since when the one that
// has waited longest does.
func (l *lanes[K]) depth() (all, initial int, oldest time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// The initial lane is in order of age. Keys that changed over to the live
	// one have been older than those before them.
	if front := l.initial.Front(); front != nil {
		oldest = front.Value.(*entry[K]).since
	}
	for element := l.live.Front(); element != nil; element = element.Next() {
		if since := element.Value.(*entry[K]).since; oldest.IsZero() || since.Before(oldest) {
			oldest = since
		}
	}
	all = len(l.waiting)
	if l.taken != nil {
		all++
		if oldest.IsZero() || l.taken.since.Before(oldest) {
			oldest = l.taken.since
		}
	}
	return all, l.initial.Len(), oldest
}
