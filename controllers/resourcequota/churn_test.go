package resourcequota_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// census counts the objects of a resource in the order in which they were
// created and deleted, of all of them or those that match.
type census struct {
	mu        sync.Mutex
	there         map[string]bool
	most, created int
}

func (w *world) census(gvr apischema.GroupVersionResource, match func(*unstructured.Unstructured) bool) *census {
	w.t.Helper()
	list, err := w.dynamic.Resource(gvr).Namespace(w.ns).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	events, err := w.dynamic.Resource(gvr).Namespace(w.ns).Watch(w.t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		w.t.Fatal(err)
	}
	c := &census{there: map[string]bool{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			if object, ok := event.Object.(*unstructured.Unstructured); ok && match(object) {
				c.take(event.Type, object.GetName())
			}
		}
	}()
	w.t.Cleanup(func() { events.Stop(); <-done })
	return c
}

func (c *census) take(event watch.EventType, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch event {
	case watch.Added:
		c.there[name] = true
		c.created++
	case watch.Deleted:
		delete(c.there, name)
	default:
	}
	c.most = max(c.most, len(c.there))
}

func (c *census) counts() (most, created int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most, c.created
}

func everyObject(*unstructured.Unstructured) bool { return true }

// client creates and deletes objects of one kind, all with names of its own.
type client struct {
	prefix         string
	create, remove func(ctx context.Context, name string) error
}

// churn creates objects and deletes them at random until more returns false,
// then deletes the rest. What a quota refuses is tried again.
func (c client) churn(w *world, random *rand.Rand, keep int, more func(created int) bool) error {
	ctx := w.t.Context()
	var alive []string
	remove := func() error {
		i := random.IntN(len(alive))
		if err := c.remove(ctx, alive[i]); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete %s: %w", alive[i], err)
		}
		alive[i] = alive[len(alive)-1]
		alive = alive[:len(alive)-1]
		return nil
	}
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for created := 0; more(created); {
		name := fmt.Sprint(c.prefix, "-", created)
		switch err := c.create(ctx, name); {
		case err == nil:
			created++
			alive = append(alive, name)
		case !refused(err):
			return fmt.Errorf("create %s: %w", name, err)
		}
		if len(alive) > 0 && (len(alive) > keep || random.IntN(2) == 0) {
			if err := remove(); err != nil {
				return err
			}
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for len(alive) > 0 {
		if err := remove(); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) podClient(prefix string, options ...podOption) client {
	pods := w.client.CoreV1().Pods(w.ns)
	return client{prefix,
		func(ctx context.Context, name string) error {
			_, err := pods.Create(ctx, newPod(name, options...), metav1.CreateOptions{})
			return err
		},
		func(ctx context.Context, name string) error { return pods.Delete(ctx, name, metav1.DeleteOptions{}) },
	}
}

// run clients; the result waits until all have ended.
func (w *world) run(clients []client, keep int, more func(created int) bool) (wait func()) {
	w.t.Helper()
	var running sync.WaitGroup
	errs := make(chan error, len(clients))
	for i, c := range clients {
		running.Go(func() { errs <- c.churn(w, rand.New(rand.NewPCG(uint64(i), 1)), keep, more) })
	}
	return func() {
		w.t.Helper()
		running.Wait()
		close(errs)
		for err := range errs {
			if err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

func TestAcceptance14_NeverMoreThanAllowed(t *testing.T) {
	t.Parallel()
	w := running(t)
	w.quota("q", amounts{"pods": "50", "count/pods": "50"})
	taken := w.census(podResource, everyObject)
	var clients []client
	for i := range 10 {
		clients = append(clients, w.podClient(fmt.Sprint("client-", i)))
	}
	// They want more than there is: each keeps up to eight pods.
	w.run(clients, 8, func(created int) bool { return created < 20 })()
	w.used("q", amounts{"pods": "0", "count/pods": "0"})
	harness.Eventually(t, soon, "end of the census", func(context.Context) error {
		if most, created := taken.counts(); created != 200 {
			return fmt.Errorf("%d pods were created, %d at most at a time", created, most)
		}
		return nil
	})
	most, _ := taken.counts()
	t.Logf("at most %d pods", most)
	if most > 50 {
		t.Errorf("%d pods at a time, 50 are allowed", most)
	}
}

// Reloads at any moment change nothing about what is allowed, nor about what is
// used in the end.
func TestReloadsNeverAllowMore(t *testing.T) {
	t.Parallel()
	w := inWorld(t, ownControlPlane(t, controlplane.Options{}), harness.Options{WholeCluster: true, DiscoveryInterval: time.Second})
	d := crd{plural: "things", group: "churn.example.com"}
	w.define(d)
	w.start(time.Second)
	limits := map[string]struct {
		hard    amounts
		options []quotaOption
		most    int
	}{
		"pods":   {amounts{"pods": "12", "requests.cpu": "12"}, nil, 12},
		"ends":   {amounts{"pods": "5"}, []quotaOption{scoped(corev1.ResourceQuotaScopeTerminating)}, 5},
		"maps":   {amounts{"configmaps": "6", "count/configmaps": "6"}, nil, 6},
		"things": {amounts{d.count(): "4"}, nil, 4},
	}
	for name, limit := range limits {
		w.quota(name, limit.hard, limit.options...)
	}
	maps := corev1.SchemeGroupVersion.WithResource("configmaps")
	taken := map[string]*census{
		"pods":   w.census(podResource, everyObject),
		"maps":   w.census(maps, everyObject),
		"things": w.census(d.resource(), everyObject),
		"ends": w.census(podResource, func(o *unstructured.Unstructured) bool {
			_, ok, err := unstructured.NestedInt64(o.Object, "spec", "activeDeadlineSeconds")
			return ok && err == nil
		}),
	}
	things, configMaps := w.dynamic.Resource(d.resource()).Namespace(w.ns), w.client.CoreV1().ConfigMaps(w.ns)
	cpu := requesting(amounts{"cpu": "1"})
	clients := []client{
		w.podClient("a", cpu), w.podClient("b", cpu), w.podClient("c", cpu),
		w.podClient("d", cpu, deadline(3600)), w.podClient("e", cpu, deadline(3600)),
	}
	for i := range 3 {
		clients = append(clients, client{fmt.Sprint("map-", i),
			func(ctx context.Context, name string) error {
				_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				return err
			},
			func(ctx context.Context, name string) error {
				return configMaps.Delete(ctx, name, metav1.DeleteOptions{})
			},
		})
	}
	for i := range 2 {
		clients = append(clients, client{fmt.Sprint("thing-", i),
			func(ctx context.Context, name string) error {
				_, err := things.Create(ctx, d.object(name), metav1.CreateOptions{})
				return err
			},
			func(ctx context.Context, name string) error { return things.Delete(ctx, name, metav1.DeleteOptions{}) },
		})
	}
	ended := make(chan struct{})
	wait := w.run(clients, 5, func(int) bool {
		select {
		case <-ended:
			return false
		default:
			return true
		}
	})
	end := sync.OnceFunc(func() { close(ended); wait() })
	t.Cleanup(end)
	w.instance.Reload(rand.Uint64(), 50, 20)()
	// A life gives nothing back in its first seconds. Some last longer.
	for range 2 {
		w.settle(taken["pods"])
		w.instance.Restart()
	}
	w.settle(taken["pods"])
	end()
	for name, limit := range limits {
		zero := amounts{}
		for resourceName := range limit.hard {
			zero[resourceName] = "0"
		}
		w.used(name, zero)
		most, created := taken[name].counts()
		t.Logf("%s: %d created, at most %d at a time", name, created, most)
		if most > limit.most {
			t.Errorf("%s: %d at a time, %d are allowed", name, most, limit.most)
		}
		if created <= limit.most {
			t.Errorf("%s: %d created, nothing was given back", name, created)
		}
	}
}

// settle waits until something was given back: more is created than could be before.
func (w *world) settle(taken *census) {
	_, before := taken.counts()
	harness.Eventually(w.t, soon, "further pods", func(context.Context) error {
		if _, now := taken.counts(); now < before+15 {
			return errors.New("none")
		}
		return nil
	})
}
