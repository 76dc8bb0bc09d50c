package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// attempt is one run of client-go's elector, which cannot change its timings
// and cannot stand again. A candidate's attempt tries to take the Lease once. A
// successor takes over from another attempt of this process, which leads.
type attempt struct {
	e         *Elector
	timings   timings
	successor bool

	elector *leaderelection.LeaderElector
	cancel  context.CancelFunc
	// acquired is closed when the elector leads, ended when it has returned.
	acquired, ended chan struct{}
	// renewed holds an entry after a renewal that nobody has taken note of yet.
	renewed chan struct{}

	// leads is set from the first successful write on; a successor's always.
	leads atomic.Bool
	// superseded is set when another attempt has taken over. The elector is
	// then let go at its next renewal rather than cancelled: a cancelled one
	// may say in leader_election_master_status that the process does not lead.
	superseded atomic.Bool

	// over is set, with Elector.mu held, when the attempt must not extend the
	// fence any more.
	over bool
	// The rest belongs to the elector's goroutine until ended is closed.
	handover handover
	err      error
}

// errHeld is why an attempt failed when somebody else was faster.
var errHeld = errors.New("the lease is held by another process")

func (e *Elector) newAttempt(t timings, successor bool) (*attempt, error) {
	a := &attempt{
		e:         e,
		timings:   t,
		successor: successor,
		cancel:    func() {},
		acquired:  make(chan struct{}),
		ended:     make(chan struct{}),
		renewed:   make(chan struct{}, 1),
	}
	a.leads.Store(successor)
	var err error
	a.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          a.lock(),
		LeaseDuration: t.lease,
		RenewDeadline: t.deadline,
		RetryPeriod:   t.retry,
		Name:          e.o.Config.ResourceName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(a.acquired) },
			OnStoppedLeading: func() {}, // ended says it
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make the elector: %w", err)
	}
	return a, nil
}

func (a *attempt) lock() resourcelock.Interface {
	l := &lock{attempt: a, LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: a.e.o.Config.ResourceNamespace, Name: a.e.o.Config.ResourceName},
		Client:     a,
		LockConfig: resourcelock.ResourceLockConfig{Identity: a.e.o.Identity},
	}}
	if a.e.o.Events != nil {
		l.LockConfig.EventRecorder = a.e.o.Events
	}
	return l
}

// lock keeps a change of timings, in which the leader stays, out of the events.
type lock struct {
	*resourcelock.LeaseLock
	attempt *attempt
}

func (l *lock) RecordEvent(change string) {
	if l.attempt.successor && change == "became leader" || l.attempt.superseded.Load() && change == "stopped leading" {
		return
	}
	l.LeaseLock.RecordEvent(change)
}

// start runs the elector until ctx ends or the attempt is lost. The caller
// waits for ended.
func (a *attempt) start(ctx context.Context) {
	ctx, a.cancel = context.WithCancel(ctx)
	ctx = logr.NewContext(ctx, logr.FromSlogHandler(a.e.o.Logger.Handler()))
	go func() {
		defer close(a.ended)
		defer a.cancel()
		defer func() {
			if r := recover(); r != nil {
				a.err = fmt.Errorf("panic in the elector: %v", r)
				a.e.o.Logger.Error("Panic in the elector", slog.Any("panic", r), slog.String("stack", string(debug.Stack())))
			}
		}()
		a.elector.Run(ctx)
	}()
}

// fail ends a candidate's attempt, which tries once only.
func (a *attempt) fail(err error) {
	if !a.leads.Load() {
		a.err = err
		a.cancel()
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
