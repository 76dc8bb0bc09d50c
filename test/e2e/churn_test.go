package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

// footprint is what a daemon holds.
type footprint struct {
	goroutines int
	heap       int
	// queues are the workqueue series, informers the resources that are
	// watched, both in order.
	queues, informers []string
	// watches that the API server has open, by resource.
	watches map[string]int
}

// measure takes the footprint after a garbage collection.
func measure(ctx context.Context, client kubernetes.Interface, d *daemon.Daemon) (f footprint, err error) {
	body, err := d.Body(ctx, "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return f, err
	}
	const alloc = "# HeapAlloc = "
	if f.heap, err = number(body, alloc); err != nil {
		return f, err
	}
	if body, err = d.Body(ctx, "/debug/pprof/goroutine?debug=1"); err != nil {
		return f, err
	}
	if f.goroutines, err = number(body, "goroutine profile: total "); err != nil {
		return f, err
	}
	if body, err = d.Body(ctx, "/metrics"); err != nil {
		return f, err
	}
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "workqueue_") {
			f.queues = append(f.queues, line[:strings.LastIndexByte(line, ' ')])
		}
	}
	held, err := informersOf(ctx, d)
	if err != nil {
		return f, err
	}
	f.informers = slices.Sorted(maps.Keys(held))
	f.watches, err = openWatches(ctx, client)
	return f, err
}

// number is the one after prefix, at the beginning of a line.
func number(text []byte, prefix string) (int, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), prefix); ok {
			return strconv.Atoi(rest)
		}
	}
	return 0, errors.Join(fmt.Errorf("no line begins with %q", prefix), lines.Err())
}

// informersOf are the informers of a daemon by resource.
func informersOf(ctx context.Context, d *daemon.Daemon) (map[string]informers.Status, error) {
	var reply struct {
		Informers []informers.Status `json:"informers"`
	}
	if err := d.Get(ctx, "/debug/informers", &reply); err != nil {
		return nil, err
	}
	held := map[string]informers.Status{}
	for _, i := range reply.Informers {
		held[fmt.Sprintf("%s metadata=%t", i.Resource, i.Metadata)] = i
	}
	return held, nil
}

// openWatches counts the watches that the API server serves, of all clients.
func openWatches(ctx context.Context, client kubernetes.Interface) (map[string]int, error) {
	body, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	open := map[string]int{}
	for line := range strings.Lines(string(body)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(series, "apiserver_longrunning_requests{") || !strings.Contains(series, `verb="WATCH"`) {
			continue
		}
		count, err := strconv.Atoi(value)
		if err != nil {
			return nil, fmt.Errorf("read the API server's metrics: %q: %w", line, err)
		}
		_, resource, _ := strings.Cut(series, `resource="`)
		resource, _, _ = strings.Cut(resource, `"`)
		open[resource] += count
	}
	return open, nil
}

// grownFrom says what of f is more than, or other than, it was.
func (f footprint) grownFrom(before footprint) error {
	// Idle connections and the requests that measure come and go.
	const goroutines, heap = 15, 8 << 20
	var errs []error
	if f.goroutines > before.goroutines+goroutines {
		errs = append(errs, fmt.Errorf("%d goroutines, there were %d", f.goroutines, before.goroutines))
	}
	if f.heap > before.heap+heap {
		errs = append(errs, fmt.Errorf("%d bytes on the heap, there were %d", f.heap, before.heap))
	}
	return errors.Join(append(errs, f.differsFrom(before))...)
}

// differsFrom says which queues, informers and watches of f are other than they were.
func (f footprint) differsFrom(before footprint) error {
	var errs []error
	if !slices.Equal(f.queues, before.queues) {
		errs = append(errs, fmt.Errorf("%d workqueue series, there were %d", len(f.queues), len(before.queues)))
	}
	if !slices.Equal(f.informers, before.informers) {
		errs = append(errs, fmt.Errorf("informers %v, there were %v", f.informers, before.informers))
	}
	if !maps.Equal(f.watches, before.watches) {
		errs = append(errs, fmt.Errorf("watches %v, there were %v", f.watches, before.watches))
	}
	return errors.Join(errs...)
}

// keepScaling changes the size of a Deployment to and fro. The returned
// function ends that with the size wanted, and says how often it was reached before.
func keepScaling(t *testing.T, client kubernetes.Interface, namespace, name string, sizes ...int32) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var scaling sync.WaitGroup
	reached := 0
	var failure error
	scaling.Go(func() {
		for ; ctx.Err() == nil; reached++ {
			if err := scaleTo(ctx, client, namespace, name, sizes[reached%len(sizes)]); err != nil {
				if ctx.Err() == nil {
					failure = err
				}
				return
			}
		}
	})
	return func() int {
		t.Helper()
		cancel()
		scaling.Wait()
		if failure != nil {
			t.Errorf("scale %s: %v", name, failure)
		}
		if err := scaleTo(t.Context(), client, namespace, name, sizes[0]); err != nil {
			t.Fatal(err)
		}
		return reached
	}
}

// scaleTo returns when a Deployment has so many pods.
func scaleTo(ctx context.Context, client kubernetes.Interface, namespace, name string, replicas int32) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	deployments := client.AppsV1().Deployments(namespace)
	scale, err := deployments.GetScale(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = replicas
	scale.ResourceVersion = "" // whatever the controllers write meanwhile
	if _, err := deployments.UpdateScale(ctx, name, scale, metav1.UpdateOptions{}); err != nil {
		return err
	}
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		d, err := deployments.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if d.Status.ObservedGeneration == d.Generation && d.Status.Replicas == replicas {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it has %d pods, want %d: %w", d.Status.Replicas, replicas, ctx.Err())
		case <-poll.C:
		}
	}
}

// A controller that is stopped and started 100 times while another one works
// leaves nothing behind, and the other one does not notice.
func TestAHundredStopsAndStartsLeaveNothingBehind(t *testing.T) {
	const churned, cycles = "ttl-after-finished-controller", 100
	cp := ownControlPlane(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	d := start(t, cp, daemon.Options{Name: "churn", Config: func(c *schema.ControllerManagerConfiguration) {
		c.Reload.Debounce.Duration = 20 * time.Millisecond
	}})
	leading(t, d)
	state(t, d, churned, "Running")
	deploy(t, client, namespace, "web", 10)
	hasReplicaSet(t, client, namespace, "web")

	stopped := func(name string) {
		if err := d.Edit(func(c *schema.ControllerManagerConfiguration) {
			c.Controllers.Sections[name].Base().Enabled = false
		}); err != nil {
			t.Fatal(err)
		}
		state(t, d, name, "Disabled")
	}
	started := func(name string) {
		if err := d.Edit(func(c *schema.ControllerManagerConfiguration) {
			c.Controllers.Sections[name].Base().Enabled = true
		}); err != nil {
			t.Fatal(err)
		}
		state(t, d, name, "Running")
	}
	// What a first stop, a first scaling and the first requests make for good is no leak.
	stop := keepScaling(t, client, namespace, "web", 10, 2)
	stopped(churned)
	started(churned)
	stop()
	var before footprint
	unchanged := 0
	eventually(t, soon, "a footprint that stays", func(ctx context.Context) error {
		now, err := measure(ctx, client, d)
		if err != nil {
			return err
		}
		unchanged++
		if err := now.differsFrom(before); err != nil {
			unchanged = 0
		}
		if before = now; unchanged < 5 {
			return errors.New("it changes")
		}
		return nil
	})
	if len(before.queues) == 0 || before.watches["jobs"] == 0 {
		t.Fatalf("there is nothing to compare with: %+v", before)
	}
	lease := follow(t, client, "e2e")

	began := time.Now()
	stop = keepScaling(t, client, namespace, "web", 10, 2)
	for range cycles {
		stopped(churned)
		started(churned)
	}
	if reached := stop(); reached < 4 {
		t.Errorf("the other controllers reached only %d sizes in %s", reached, time.Since(began))
	}
	t.Logf("%d stops and starts took %s", cycles, time.Since(began))
	lease(d.Config().LeaderElection.LeaseDuration.Duration)

	var after footprint
	eventually(t, soon, "everything is as it was", func(ctx context.Context) error {
		var err error
		if after, err = measure(ctx, client, d); err != nil {
			return err
		}
		return after.grownFrom(before)
	})
	t.Logf("goroutines %d → %d, heap %d → %d", before.goroutines, after.goroutines, before.heap, after.heap)
	var reply controllersReply
	if err := d.Get(t.Context(), "/debug/controllers", &reply); err != nil {
		t.Fatal(err)
	}
	for _, c := range reply.Controllers {
		if c.Name != churned && c.Restarts != 0 {
			t.Errorf("%s was restarted %d times", c.Name, c.Restarts)
		}
	}
	stopped(churned)
	eventually(t, soon, "the series of a stopped controller are gone", func(ctx context.Context) error {
		during, err := measure(ctx, client, d)
		if err == nil && len(during.queues) >= len(before.queues) {
			err = fmt.Errorf("%d workqueue series, %d while it runs", len(during.queues), len(before.queues))
		}
		return err
	})
}

// A change of workers costs the API server no list and no watch.
func TestResizesListAndWatchNothing(t *testing.T) {
	const resized = "deployment-controller"
	cp := ownControlPlane(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	d := start(t, cp, daemon.Options{Name: "resize", Config: func(c *schema.ControllerManagerConfiguration) {
		c.Controllers.Sections[resized].Base().Workers = 1
	}})
	leading(t, d)
	eventually(t, soon, "all caches are filled", func(ctx context.Context) error {
		_, err := d.Body(ctx, "/readyz")
		return err
	})
	deploy(t, client, namespace, "web", 10)
	hasReplicaSet(t, client, namespace, "web")
	// A watch that was made anew at the takeover is a short one, and followed by another.
	var before map[string]informers.Status
	since := time.Now()
	eventually(t, soon, "watches that stay", func(ctx context.Context) error {
		now, err := informersOf(ctx, d)
		if err != nil {
			return err
		}
		if !maps.EqualFunc(now, before, func(a, b informers.Status) bool { return a.Lists == b.Lists && a.Watches == b.Watches }) {
			before, since = now, time.Now()
		}
		if time.Since(since) < 10*time.Second {
			return errors.New("they have changed just now")
		}
		return nil
	})
	from := position(t, cp)
	stop := keepScaling(t, client, namespace, "web", 10, 2)
	for _, workers := range []int{50, 3} {
		if err := d.Edit(func(c *schema.ControllerManagerConfiguration) {
			c.Controllers.Sections[resized].Base().Workers = workers
		}); err != nil {
			t.Fatal(err)
		}
		eventually(t, soon, fmt.Sprintf("%d workers", workers), func(ctx context.Context) error {
			var reply controllersReply
			if err := d.Get(ctx, "/debug/controllers", &reply); err != nil {
				return err
			}
			for _, c := range reply.Controllers {
				if c.Name == resized && (c.Workers.Running != workers || c.Restarts != 0 || c.State != "Running") {
					return fmt.Errorf("%+v", c)
				}
			}
			return nil
		})
	}
	stop()
	after, err := informersOf(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if len(before) == 0 || !slices.Equal(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))) {
		t.Errorf("informers of %d resources before, of %d after", len(before), len(after))
	}
	for name, i := range before {
		if now := after[name]; now.Lists != i.Lists || now.Watches != i.Watches {
			t.Errorf("%s: %d lists and %d watches before, %d and %d after", name, i.Lists, i.Watches, now.Lists, now.Watches)
		}
	}
	requests, err := cp.Audit().Requests(from, func(e auditv1.Event) bool {
		return (e.Verb == "list" || e.Verb == "watch") && strings.HasPrefix(e.UserAgent, "controller-manager/")
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range requests {
		t.Errorf("sent during the resizes: %s %s by %s", requests[i].Verb, requests[i].RequestURI, requests[i].UserAgent)
	}
}
