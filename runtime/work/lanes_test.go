package work

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

func newLaneQueue(t *testing.T) (*lanes[string], workqueue.TypedInterface[string]) {
	t.Helper()
	l := newLanes[string](time.Now)
	q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: l})
	t.Cleanup(q.ShutDown)
	return l, q
}

func add(l *lanes[string], q workqueue.TypedInterface[string], to lane, keys ...string) {
	for _, key := range keys {
		l.willAdd(key, to)
		q.Add(key)
	}
}

// drainKeys takes and finishes everything that waits.
func drainKeys(q workqueue.TypedInterface[string]) []string {
	var keys []string
	for q.Len() > 0 {
		key, _ := q.Get()
		q.Done(key)
		keys = append(keys, key)
	}
	return keys
}

func TestLiveKeysOvertakeInitialOnes(t *testing.T) {
	l, q := newLaneQueue(t)
	add(l, q, initialLane, "i1", "i2")
	add(l, q, liveLane, "l1", "l2")
	if got, want := drainKeys(q), []string{"l1", "l2", "i1", "i2"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestInitialKeysDoNotStarve(t *testing.T) {
	l, q := newLaneQueue(t)
	add(l, q, initialLane, "initial0", "initial1", "initial2")
	for i := range 10 {
		add(l, q, liveLane, "live"+strconv.Itoa(i))
	}
	var turns []int
	for i := range 24 {
		key, _ := q.Get()
		q.Done(key)
		if key[0] == 'i' {
			turns = append(turns, i)
		} else {
			add(l, q, liveLane, key) // live events never end
		}
	}
	if want := []int{7, 15, 23}; !slices.Equal(turns, want) {
		t.Errorf("initial keys had turns %v, want %v", turns, want)
	}
}

func TestLiveEventMovesAnInitialKeyUp(t *testing.T) {
	tests := map[string]struct {
		add  func(l *lanes[string], q workqueue.TypedInterface[string])
		want []string
	}{
		"touched by a live event": {
			func(l *lanes[string], q workqueue.TypedInterface[string]) {
				add(l, q, initialLane, "a", "b", "c")
				add(l, q, liveLane, "c")
			}, []string{"c", "a", "b"},
		},
		"touched by another initial list": {
			func(l *lanes[string], q workqueue.TypedInterface[string]) {
				add(l, q, initialLane, "a", "b", "c")
				add(l, q, initialLane, "c")
			}, []string{"a", "b", "c"},
		},
		"a live key stays live when an initial list brings it again": {
			func(l *lanes[string], q workqueue.TypedInterface[string]) {
				add(l, q, initialLane, "a", "b")
				add(l, q, liveLane, "c")
				add(l, q, initialLane, "c")
			}, []string{"c", "a", "b"},
		},
		"initial while it is reconciled": {
			func(l *lanes[string], q workqueue.TypedInterface[string]) {
				add(l, q, liveLane, "c")
				key, _ := q.Get()
				add(l, q, initialLane, "c", "a")
				add(l, q, liveLane, "b")
				q.Done(key)
			}, []string{"b", "a", "c"},
		},
		"live, then initial, while it is reconciled": {
			func(l *lanes[string], q workqueue.TypedInterface[string]) {
				add(l, q, liveLane, "c")
				key, _ := q.Get()
				add(l, q, initialLane, "a")
				add(l, q, liveLane, "c")
				add(l, q, initialLane, "c")
				q.Done(key)
			}, []string{"c", "a"},
		},
		"initial, then live, while it is reconciled": {
			func(l *lanes[string], q workqueue.TypedInterface[string]) {
				add(l, q, liveLane, "c")
				key, _ := q.Get()
				add(l, q, initialLane, "a", "c")
				add(l, q, liveLane, "c")
				q.Done(key)
			}, []string{"c", "a"},
		},
		"without a note, as retries come": {
			func(l *lanes[string], q workqueue.TypedInterface[string]) {
				add(l, q, initialLane, "a", "b")
				q.Add("b")
				q.Add("c")
			}, []string{"b", "c", "a"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l, q := newLaneQueue(t)
			test.add(l, q)
			if got := drainKeys(q); !slices.Equal(got, test.want) {
				t.Errorf("order %v, want %v", got, test.want)
			}
			if len(l.noted) != 0 || len(l.waiting) != 0 {
				t.Errorf("left behind: notes %v, waiting %v", l.noted, l.waiting)
			}
		})
	}
}

func TestDepthKnowsTheOldestKeyInEitherLane(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLanes[string](func() time.Time { return now })
	if all, initial, oldest := l.depth(); all != 0 || initial != 0 || !oldest.IsZero() {
		t.Errorf("empty: %d %d %v", all, initial, oldest)
	}
	push := func(key string, to lane) {
		now = now.Add(time.Second)
		l.willAdd(key, to)
		l.Push(key)
	}
	push("a", initialLane) // at 1001
	push("b", liveLane)    // at 1002
	push("c", initialLane) // at 1003
	check := func(wantAll, wantInitial int, wantOldest int64) {
		t.Helper()
		if all, initial, oldest := l.depth(); all != wantAll || initial != wantInitial || oldest.Unix() != wantOldest {
			t.Errorf("depth %d, %d initial, oldest %d; want %d, %d, %d", all, initial, oldest.Unix(), wantAll, wantInitial, wantOldest)
		}
	}
	check(3, 2, 1001)
	l.Touch("a") // changes over behind b, but keeps its age
	check(3, 1, 1001)
	if key := l.Pop(); key != "b" {
		t.Fatalf("popped %s, want b", key)
	}
	check(3, 1, 1001) // it waits until it has begun
	l.begun()
	l.Pop()
	l.begun()
	check(1, 1, 1003)
}
