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
	clock *workClock

	mu sync.Mutex
	// lists are the ready pods that each object lists, by Service and name of the object.
	lists map[string]map[string][]string
	// services of the objects, by name.
	services map[string]string
	wanted   map[pair]struct{}
	// missing are the wanted ones that nothing lists, since when.
	missing map[pair]moment
	longest gap
}

type pair struct{ service, pod string }

// moment by the clock on the wall, and by that of the machine's work.
type moment struct {
	wall time.Time
	work time.Duration
}

// gap is how long a pod was left out.
type gap struct {
	pair
	wall, work time.Duration
}

// FollowSlices follows the EndpointSlices of manager until the test ends.
func (w *World) FollowSlices(manager string) *Listing {
	w.T.Helper()
	return w.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Discovery().V1().EndpointSlices().Informer()
	}, func(obj any) (l list, ok bool) {
		slice, ok := obj.(*discovery.EndpointSlice)
		if !ok || slice.Labels[discovery.LabelManagedBy] != manager {
			return list{}, false
		}
		l = list{name: slice.Name, service: slice.Labels[discovery.LabelServiceName]}
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; e.TargetRef != nil && ptr.Deref(e.Conditions.Ready, false) {
				l.pods = append(l.pods, e.TargetRef.Name)
			}
		}
		return l, true
	})
}

// FollowEndpoints follows the Endpoints until the test ends.
func (w *World) FollowEndpoints() *Listing {
	w.T.Helper()
	return w.follow(func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Core().V1().Endpoints().Informer()
	}, func(obj any) (l list, ok bool) {
		endpoints, ok := obj.(*v1.Endpoints)
		if !ok {
			return list{}, false
		}
		l = list{name: endpoints.Name, service: endpoints.Name}
		for i := range endpoints.Subsets {
			for j := range endpoints.Subsets[i].Addresses {
				if target := endpoints.Subsets[i].Addresses[j].TargetRef; target != nil {
					l.pods = append(l.pods, target.Name)
				}
			}
		}
		return l, true
	})
}

// list is what one object lists.
type list struct {
	name, service string
	pods          []string
}

func (w *World) follow(of func(informers.SharedInformerFactory) cache.SharedIndexInformer, read func(any) (list, bool)) *Listing {
	w.T.Helper()
	l := &Listing{
		clock:    w.startClock(),
		lists:    map[string]map[string][]string{},
		services: map[string]string{},
		wanted:   map[pair]struct{}{},
		missing:  map[pair]moment{},
	}
	factory := informers.NewSharedInformerFactoryWithOptions(w.Admin, 0, informers.WithNamespace(w.Namespace))
	informer := of(factory)
	set := func(obj any) {
		if now, ok := read(obj); ok {
			l.set(now)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if gone, ok := read(obj); ok {
				l.set(list{name: gone.name})
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

// set what an object lists now; nothing for no Service when it is gone.
func (l *Listing) set(now list) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.services[now.name]
	before := l.lists[was][now.name]
	delete(l.lists[was], now.name)
	if now.service == "" {
		delete(l.services, now.name)
	} else {
		if l.lists[now.service] == nil {
			l.lists[now.service] = map[string][]string{}
		}
		l.lists[now.service][now.name], l.services[now.name] = now.pods, now.service
	}
	for _, pod := range before {
		l.judge(pair{was, pod})
	}
	for _, pod := range now.pods {
		l.judge(pair{now.service, pod})
	}
}

// judge a pair after something has changed.
func (l *Listing) judge(p pair) {
	_, wanted := l.wanted[p]
	since, missing := l.missing[p]
	switch listed := l.listed(p); {
	case wanted && !listed && !missing:
		l.missing[p] = moment{time.Now(), l.clock.Now()}
	case missing && (listed || !wanted):
		delete(l.missing, p)
		l.longest = longer(l.longest, l.gap(p, since))
	}
}

func (l *Listing) gap(p pair, since moment) gap {
	return gap{p, time.Since(since.wall), l.clock.Now() - since.work}
}

func longer(a, b gap) gap {
	if b.work > a.work {
		return b
	}
	return a
}

func (l *Listing) listed(p pair) bool {
	for _, pods := range l.lists[p.service] {
		if slices.Contains(pods, p.pod) {
			return true
		}
	}
	return false
}

// Want says that from now on a Service should list a pod.
func (l *Listing) Want(service, pod string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := pair{service, pod}
	if _, ok := l.wanted[p]; !ok {
		l.wanted[p] = struct{}{}
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

// leftOut is the longest time that a wanted pod was missing, up to now.
func (l *Listing) leftOut() gap {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := l.longest
	for p, since := range l.missing {
		longest = longer(longest, l.gap(p, since))
	}
	return longest
}

// Wrong says what is listed that is not wanted, or missing, or listed twice; nil when nothing is.
func (l *Listing) Wrong() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	listed := map[pair]int{}
	for service, objects := range l.lists {
		for _, pods := range objects {
			for _, pod := range pods {
				listed[pair{service, pod}]++
			}
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
