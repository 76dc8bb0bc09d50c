package work

import (
	"fmt"
	"time"
)

// Status of all queues together.
func (g *Group) Status() Status {
	var sum Status
	for _, q := range g.Queues() {
		sum.Wanted += q.Wanted
		sum.Running += q.Running
		sum.Busy += q.Busy
		sum.Depth += q.Depth
		sum.Oldest = max(sum.Oldest, q.Oldest)
		if q.Longest > sum.Longest || sum.LongestKey == "" {
			sum.Longest, sum.LongestKey = q.Longest, q.LongestKey
		}
		if q.LastErrorAt.After(sum.LastErrorAt) {
			sum.LastError, sum.LastErrorAt = q.LastError, q.LastErrorAt
		}
	}
	return sum
}

// Queues returns the status of each queue, in the order of their making.
func (g *Group) Queues() []QueueStatus {
	now := g.options.Clock.Now()
	var all []QueueStatus
	for _, q := range g.allQueues() {
		all = append(all, q.status(now))
	}
	return all
}

func (q *Queue[K]) status(now time.Time) QueueStatus {
	s := QueueStatus{Name: q.options.Name}
	var oldest time.Time
	// A key that begins, or ends and waits again, does so under this lock.
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Depth, s.Initial, oldest = q.lanes.depth()
	if s.Depth > 0 {
		s.Oldest = max(now.Sub(oldest), 0)
	}
	s.Wanted = q.workers
	s.Busy = len(q.running)
	if q.workers > 0 && !q.closed {
		s.Running = max(q.workers, s.Busy)
	} else {
		s.Running = s.Busy
	}
	for key, since := range q.running {
		if d := now.Sub(since); d > s.Longest || s.LongestKey == "" {
			s.Longest, s.LongestKey = max(d, 0), fmt.Sprint(key)
		}
	}
	s.LastError, s.LastErrorAt = q.lastError, q.lastErrorAt
	return s
}

func (q *Queue[K]) runningKeys(now time.Time) []RunningKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	var keys []RunningKey
	for key, since := range q.running {
		keys = append(keys, RunningKey{Queue: q.options.Name, Key: fmt.Sprint(key), For: max(now.Sub(since), 0)})
	}
	return keys
}
