package work

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// metrics counts what a queue reports.
type metrics struct {
	mu     sync.Mutex
	values map[string]float64
}

type metric struct {
	m    *metrics
	name string
}

func (c metric) change(f func(float64) float64) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.m.values == nil {
		c.m.values = map[string]float64{}
	}
	c.m.values[c.name] = f(c.m.values[c.name])
}

func (c metric) Inc()              { c.change(func(v float64) float64 { return v + 1 }) }
func (c metric) Dec()              { c.change(func(v float64) float64 { return v - 1 }) }
func (c metric) Set(to float64)    { c.change(func(float64) float64 { return to }) }
func (c metric) Observe(v float64) { c.Inc() }

func (m *metrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return metric{m, name + " depth"}
}
func (m *metrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return metric{m, name + " adds"}
}
func (m *metrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return metric{m, name + " latency"}
}
func (m *metrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return metric{m, name + " duration"}
}
func (m *metrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return metric{m, name + " unfinished"}
}
func (m *metrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return metric{m, name + " longest"}
}
func (m *metrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return metric{m, name + " retries"}
}

func TestMetricsCountRetriesButNotWaitsForTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen fakeCache
		m := &metrics{}
		runs := 0
		g := NewGroup(GroupOptions{Logger: quiet, MetricsProvider: m, Marks: recordWrites, Reached: seen.reached})
		q := NewQueue(g, Options[string]{Name: "deployment", Reconcile: func(ctx context.Context, key string) (Result, error) {
			runs++
			switch runs {
			case 1:
				return Result{}, errors.New("no luck")
			case 2:
				write(ctx, pods, 1)
				return Result{RequeueAfter: time.Millisecond}, nil
			}
			time.Sleep(10 * time.Second)
			return Result{}, nil
		}})
		q.Add("a")
		g.Start(t.Context(), 1)
		time.Sleep(100 * time.Millisecond)
		seen.reach(pods, 1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		m.mu.Lock()
		got := maps.Clone(m.values)
		m.mu.Unlock()
		if runs != 3 || got["deployment retries"] != 2 || got["deployment depth"] != 0 || got["deployment longest"] < 1 {
			t.Errorf("%d runs, metrics %v; want 3 runs, of which 2 are retries, the last one under way", runs, got)
		}
		if got["deployment adds"] <= 3 {
			t.Errorf("metrics %v, want the waits for the cache among the additions", got)
		}
		mustDrain(t, g)
	})
}
