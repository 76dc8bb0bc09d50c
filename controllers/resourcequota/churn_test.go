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
// created and deleted.
type census struct {
	mu            sync.Mutex
	there         map[string]bool
	most, created int
}

func (w *world) census(gvr apischema.GroupVersionResource) *census {
	w.t.Helper()
	c := &census{there: map[string]bool{}}
	harness.Follow(w.t, w.dynamic.Resource(gvr).Namespace(w.ns), metav1.ListOptions{}, func(event watch.EventType, object *unstructured.Unstructured) {
		c.take(event, object.GetName())
	})
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

func (w *world) mapClient(prefix string) client {
	configMaps := w.client.CoreV1().ConfigMaps(w.ns)
	return client{prefix,
		func(ctx context.Context, name string) error {
			_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		},
		func(ctx context.Context, name string) error {
			return configMaps.Delete(ctx, name, metav1.DeleteOptions{})
		},
	}
}

func (w *world) customClient(d crd, prefix string) client {
	objects := w.dynamic.Resource(d.resource()).Namespace(w.ns)
	return client{prefix,
		func(ctx context.Context, name string) error {
			_, err := objects.Create(ctx, d.object(name), metav1.CreateOptions{})
			return err
		},
		func(ctx context.Context, name string) error { return objects.Delete(ctx, name, metav1.DeleteOptions{}) },
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

func acceptance14(w *world) {
	w.quota("q", amounts{"pods": "50", "count/pods": "50"})
	taken := w.census(podResource)
	var clients []client
	for i := range 10 {
		clients = append(clients, w.podClient(fmt.Sprint("client-", i)))
	}
	// They want more than there is: each keeps up to eight pods.
	w.run(clients, 8, func(created int) bool { return created < 20 })()
	w.used("q", amounts{"pods": "0", "count/pods": "0"})
	harness.Eventually(w.t, soon, "end of the census", func(context.Context) error {
		if most, created := taken.counts(); created != 200 {
			return fmt.Errorf("%d pods were created, %d at most at a time", created, most)
		}
		return nil
	})
	most, _ := taken.counts()
	w.t.Logf("at most %d pods", most)
	if most > 50 {
		w.t.Errorf("%d pods at a time, 50 are allowed", most)
	}
}

// churned is a namespace with one quota, whose clients want more than it allows.
//
// One, because kube-apiserver 1.37 lets an object pass uncharged that one quota
// refuses while the update of another one of its namespace conflicts: the
// second attempt looks at that other quota only.
type churned struct {
	*world
	hard  amounts
	most  int
	taken *census
}

// reloads at any moment change nothing about what is allowed, nor about what is
// used in the end.
func (w *world) reloads(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	d := crd{plural: "things", group: "churn.example.com"}
	w.define(d)
	maps := corev1.SchemeGroupVersion.WithResource("configmaps")
	all := map[string]*churned{}
	limit := func(name string, gvr apischema.GroupVersionResource, most int, hard amounts, options ...quotaOption) *churned {
		c := &churned{world: w.another(t, cp), hard: hard, most: most}
		c.quota("q", hard, options...)
		c.taken = c.census(gvr)
		all[name] = c
		return c
	}
	pods := limit("pods", podResource, 8, amounts{"pods": "8", "requests.cpu": "8", "count/pods": "8"})
	ends := limit("ends", podResource, 4, amounts{"pods": "4"}, scoped(corev1.ResourceQuotaScopeTerminating))
	named := limit("maps", maps, 5, amounts{"configmaps": "5", "count/configmaps": "5"})
	custom := limit("things", d.resource(), 4, amounts{d.count(): "4"})

	ended := make(chan struct{})
	more := func(int) bool {
		select {
		case <-ended:
			return false
		default:
			return true
		}
	}
	cpu := requesting(amounts{"cpu": "1"})
	waits := []func(){
		pods.run([]client{pods.podClient("a", cpu), pods.podClient("b", cpu), pods.podClient("c", cpu), pods.podClient("d", cpu)}, 5, more),
		ends.run([]client{ends.podClient("a", deadline(3600)), ends.podClient("b", deadline(3600))}, 5, more),
		named.run([]client{named.mapClient("a"), named.mapClient("b")}, 5, more),
		custom.run([]client{custom.customClient(d, "a"), custom.customClient(d, "b")}, 5, more),
	}
	end := sync.OnceFunc(func() {
		close(ended)
		for _, wait := range waits {
			wait()
		}
	})
	t.Cleanup(end)
	w.instance.Reload(rand.Uint64(), 50, 20)()
	// A life gives nothing back in its first seconds. Some last longer.
	pods.settle()
	w.instance.Restart()
	pods.settle()
	end()
	for name, c := range all {
		zero := amounts{}
		for resourceName := range c.hard {
			zero[resourceName] = "0"
		}
		c.used("q", zero)
		most, created := c.taken.counts()
		t.Logf("%s: %d created, at most %d at a time", name, created, most)
		if most > c.most {
			t.Errorf("%s: %d at a time, %d are allowed", name, most, c.most)
		}
		if created <= c.most {
			t.Errorf("%s: %d created, nothing was given back", name, created)
		}
	}
}

// settle waits until something was given back: more is created than could be before.
func (c *churned) settle() {
	c.t.Helper()
	_, before := c.taken.counts()
	harness.Eventually(c.t, soon, "further objects", func(context.Context) error {
		if _, now := c.taken.counts(); now < before+c.most+1 {
			return errors.New("none")
		}
		return nil
	})
}
