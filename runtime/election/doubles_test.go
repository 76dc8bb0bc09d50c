package election

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/runtime/client"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var leaseResource = apischema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// server keeps one Lease as an API server does: with versions, conflicts and watches.
type server struct {
	coordinationv1client.LeaseInterface // nil: other calls are not made

	mu       sync.Mutex
	lease    *coordinationv1.Lease
	version  int
	watches  []*watch.RaceFreeFakeWatcher
	requests int
	// fault is what happens to each request, by verb; nil is none.
	fault func(ctx context.Context, verb string) error
	// lost makes the answers of writes fail after they were done.
	lost error
	// writes that were done.
	writes []write
}

type write struct {
	at    time.Time
	lease *coordinationv1.Lease
}

func (s *server) Leases(string) coordinationv1client.LeaseInterface { return s }

func (s *server) fail(fault func(ctx context.Context, verb string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *server) begin(ctx context.Context, verb string) error {
	s.mu.Lock()
	s.requests++
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, verb); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *server) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := s.begin(ctx, "get"); err != nil {
		return &coordinationv1.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return &coordinationv1.Lease{}, apierrors.NewNotFound(leaseResource, name)
	}
	return s.lease.DeepCopy(), nil
}

func (s *server) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if err := s.begin(ctx, "create"); err != nil {
		return &coordinationv1.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		return &coordinationv1.Lease{}, apierrors.NewAlreadyExists(leaseResource, lease.Name)
	}
	return s.store(watch.Added, lease)
}

func (s *server) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := s.begin(ctx, "update"); err != nil {
		return &coordinationv1.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return &coordinationv1.Lease{}, apierrors.NewNotFound(leaseResource, lease.Name)
	}
	if lease.ResourceVersion != "" && lease.ResourceVersion != s.lease.ResourceVersion {
		return &coordinationv1.Lease{}, apierrors.NewConflict(leaseResource, lease.Name, fmt.Errorf("it is at %d", s.version))
	}
	return s.store(watch.Modified, lease)
}

func (s *server) store(event watch.EventType, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.version++
	s.lease = lease.DeepCopy()
	s.lease.ResourceVersion = strconv.Itoa(s.version)
	s.writes = append(s.writes, write{time.Now(), s.lease.DeepCopy()})
	s.send(event)
	if s.lost != nil {
		return &coordinationv1.Lease{}, s.lost
	}
	return s.lease.DeepCopy(), nil
}

func (s *server) send(event watch.EventType) {
	for _, w := range s.watches {
		w.Action(event, s.lease.DeepCopy())
	}
}

func (s *server) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	if err := s.begin(ctx, "watch"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := watch.NewRaceFreeFake()
	s.watches = append(s.watches, w)
	return w, nil
}

// remove deletes the Lease, as somebody else.
func (s *server) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(watch.Deleted)
	s.lease = nil
}

// hold writes the Lease as another holder does that keeps everything else in
// it; an empty holder releases it.
func (s *server) hold(holder string, seconds int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "lease", Namespace: "test"}}
	if s.lease != nil {
		lease = s.lease.DeepCopy()
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != holder && holder != "" {
		lease.Spec.LeaseTransitions = ptr.To(transitions(lease) + 1)
		lease.Spec.AcquireTime = ptr.To(metav1.NowMicro())
	}
	lease.Spec.HolderIdentity = ptr.To(holder)
	lease.Spec.LeaseDurationSeconds = ptr.To(seconds)
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	_, _ = s.store(watch.Modified, lease)
}

func (s *server) current() *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy()
}

// by returns the writes of a holder.
func (s *server) by(identity string) []write {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.writes), func(w write) bool { return holder(w.lease) != identity })
}

// candidate is an Elector under test with a record of what it did.
type candidate struct {
	*Elector
	fence   *client.Fence
	written map[apischema.GroupResource]string

	mu     sync.Mutex
	record []string
	since  []time.Time
	events []string
	// lose is called in OnLost.
	lose func()
}

func config() schema.LeaderElection {
	return schema.LeaderElection{
		Enabled:           true,
		LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
		ResourceName:      "lease",
		ResourceNamespace: "test",
		ReleaseOnExit:     true,
	}
}

func newCandidate(t *testing.T, leases coordinationv1client.LeasesGetter, identity string,
	change ...func(*schema.LeaderElection)) *candidate {
	t.Helper()
	c := &candidate{fence: client.NewFence(nil)}
	o := Options{
		Leases:   leases,
		Config:   config(),
		Identity: identity,
		Fence:    c.fence,
		Events:   c,
		Logger:   slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnLead: func(ctx context.Context) {
			c.note("lead")
			<-ctx.Done()
			if c.fence.Allow() == nil {
				c.note("the context ended before the fence was shut")
			}
		},
		OnLost: func() {
			if c.fence.Allow() == nil {
				c.note("lost before the fence was shut")
			}
			c.note("lost")
			if c.lose != nil {
				c.lose()
			}
		},
		Written: func() map[apischema.GroupResource]string { return c.written },
	}
	for _, f := range change {
		f(&o.Config)
	}
	var err error
	if c.Elector, err = New(o); err != nil {
		t.Fatal(err)
	}
	return c
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Log(string(p[:len(p)-1]))
	return len(p), nil
}

// run runs the elector until stop is called, which waits for it.
func (c *candidate) run(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := c.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (c *candidate) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.record = append(c.record, what)
	c.since = append(c.since, time.Now())
}

// did returns what the candidate did so far, and when it did the last of it.
func (c *candidate) did() ([]string, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.since) == 0 {
		return nil, time.Time{}
	}
	return slices.Clone(c.record), c.since[len(c.since)-1]
}

func (c *candidate) expect(t *testing.T, want ...string) time.Time {
	t.Helper()
	got, at := c.did()
	if !slices.Equal(got, want) {
		t.Errorf("%s did %q, want %q", c.o.Identity, got, want)
	}
	return at
}

func (c *candidate) recorded() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.events)
}

// The event recorder.

func (c *candidate) Event(_ runtime.Object, eventType, reason, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, fmt.Sprintf("%s %s %s", eventType, reason, message))
}

func (c *candidate) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	c.Event(object, eventType, reason, fmt.Sprintf(format, args...))
}

func (c *candidate) AnnotatedEventf(object runtime.Object, _ map[string]string, eventType, reason, format string, args ...any) {
	c.Eventf(object, eventType, reason, format, args...)
}

// settle lets d pass and everything come to rest.
func settle(d time.Duration) {
	pass(d)
	synctest.Wait()
}

// pass lets time go by in a bubble of synctest, where nobody waits for it.
func pass(d time.Duration) { time.Sleep(d) }
