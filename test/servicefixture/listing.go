package servicefixture

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// Listing follows which ready pods the endpoints of each Service list, and how
// long one that should be listed was not. Its methods may be called concurrently.
type Listing struct {
	mu sync.Mutex
	// lists are the ready pods that each object lists, by the object's name, with its Service.
	lists map[string]list
	// wanted pods of each Service, since when.
	wanted map[pair]time.Time
	// missing are the wanted ones that nothing lists, since when.
	missing map[pair]time.Time
	longest time.Duration
	worst   pair
}

type list struct {
	service string
	pods    []string
}

type pair struct{ service, pod string }

// FollowSlices follows the EndpointSlices of manager until the test ends.
func (w *World) FollowSlices(manager string) *Listing {
	w.T.Helper()
	return w.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Discovery().V1().EndpointSlices().Informer()
	}, func(obj any) (string, list, bool) {
		slice, ok := obj.(*discovery.EndpointSlice)
		if !ok || slice.Labels[discovery.LabelManagedBy] != manager {
			return "", list{}, false
		}
		l := list{service: slice.Labels[discovery.LabelServiceName]}
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; e.TargetRef != nil && ptr.Deref(e.Conditions.Ready, false) {
				l.pods = append(l.pods, e.TargetRef.Name)
			}
		}
		return slice.Name, l, true
	})
}

// FollowEndpoints follows the Endpoints until the test ends.
func (w *World) FollowEndpoints() *Listing {
	w.T.Helper()
	return w.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Core().V1().Endpoints().Informer()
	}, func(obj any) (string, list, bool) {
		endpoints, ok := obj.(*v1.Endpoints)
		if !ok {
			return "", list{}, false
		}
		l := list{service: endpoints.Name}
		for i := range endpoints.Subsets {
			for j := range endpoints.Subsets[i].Addresses {
				if target := endpoints.Subsets[i].Addresses[j].TargetRef; target != nil {
					l.pods = append(l.pods, target.Name)
				}
			}
		}
		return endpoints.Name, l, true
	})
}

func (w *World) follow(of func(informers.SharedInformerFactory) cache.SharedIndexInformer, read func(any) (string, list, bool)) *Listing {
	w.T.Helper()
	l := &Listing{lists: map[string]list{}, wanted: map[pair]time.Time{}, missing: map[pair]time.Time{}}
	factory := informers.NewSharedInformerFactoryWithOptions(w.Admin, 0, informers.WithNamespace(w.Namespace))
	informer := of(factory)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { l.set(read(obj)) },
		UpdateFunc: func(_, obj any) {
			l.set(read(obj))
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if name, _, ok := read(obj); ok {
				l.set(name, list{}, true)
			}
		},
	})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	w.T.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			w.T.Fatalf("cannot follow %s", kind)
		}
	}
	return l
}

func (l *Listing) set(name string, now list, ok bool) {
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.lists[name]
	if now.service == "" {
		delete(l.lists, name)
	} else {
		l.lists[name] = now
	}
	for _, of := range []list{before, now} {
		for _, pod := range of.pods {
			l.judge(pair{of.service, pod})
		}
	}
}

// judge a pair after something has changed.
func (l *Listing) judge(p pair) {
	now := time.Now()
	_, wanted := l.wanted[p]
	since, missing := l.missing[p]
	switch listed := l.times(p) > 0; {
	case wanted && !listed && !missing:
		l.missing[p] = now
	case missing && (listed || !wanted):
		delete(l.missing, p)
		if gap := now.Sub(since); gap > l.longest {
			l.longest, l.worst = gap, p
		}
	}
}

func (l *Listing) times(p pair) int {
	times := 0
	for _, of := range l.lists {
		if of.service != p.service {
			continue
		}
		for _, pod := range of.pods {
			if pod == p.pod {
				times++
			}
		}
	}
	return times
}

// Want says that from now on a Service should list a pod.
func (l *Listing) Want(service, pod string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := pair{service, pod}
	if _, ok := l.wanted[p]; !ok {
		l.wanted[p] = time.Now()
		l.judge(p)
	}
}

// Unwant says that a pod need not be listed any more.
func (l *Listing) Unwant(service, pod string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := pair{service, pod}
	delete(l.wanted, p)
	l.judge(p)
}

// Longest is the longest time that a wanted pod was missing, up to now.
func (l *Listing) Longest() (time.Duration, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest, worst := l.longest, l.worst
	for p, since := range l.missing {
		if gap := time.Since(since); gap > longest {
			longest, worst = gap, p
		}
	}
	return longest, worst.service + "/" + worst.pod
}

// Wrong says what is listed that is not wanted, or missing, or listed twice; nil when nothing is.
func (l *Listing) Wrong() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	listed := map[pair]int{}
	for _, of := range l.lists {
		for _, pod := range of.pods {
			listed[pair{of.service, pod}]++
		}
	}
	var faults []string
	for p := range l.wanted {
		if listed[p] != 1 {
			faults = append(faults, fmt.Sprintf("%s/%s is listed %d times", p.service, p.pod, listed[p]))
		}
	}
	for p := range listed {
		if _, ok := l.wanted[p]; !ok {
			faults = append(faults, fmt.Sprintf("%s/%s should not be listed", p.service, p.pod))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	slices.Sort(faults)
	return fmt.Errorf("%d faults, such as %v", len(faults), faults[:min(len(faults), 5)])
}
