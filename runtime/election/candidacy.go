package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/leaderelection"
)

// acquire returns the attempt that leads, or nil when ctx ends.
func (e *Elector) acquire(ctx context.Context) (*attempt, error) {
	for {
		if !e.waitUntilFree(ctx) {
			return nil, nil
		}
		a, err := e.newAttempt(e.timings(), false)
		if err != nil {
			return nil, err
		}
		a.start(ctx)
		select {
		case <-a.acquired:
			return a, nil
		case <-a.ended:
		}
		if closed(a.acquired) {
			return a, nil
		}
		e.endTerm(a)
		switch {
		case ctx.Err() != nil:
			continue // waitUntilFree ends it
		case errors.Is(a.err, errHeld) || apierrors.IsConflict(a.err) || apierrors.IsAlreadyExists(a.err):
			continue // somebody was faster, and holds it now
		}
		e.o.Logger.Warn("Failed to take the leader lease, will try again", slog.Any("err", a.err))
		e.pause(ctx)
	}
}

// waitUntilFree returns true when the Lease may be taken, false when ctx ends.
func (e *Elector) waitUntilFree(ctx context.Context) bool {
	for ctx.Err() == nil {
		lease, err := e.get(ctx)
		switch {
		case err == nil:
			e.seen.see(lease)
		case ctx.Err() != nil:
			return false
		case !apierrors.IsNotFound(err):
			e.o.Logger.Warn("Failed to read the leader lease, will try again", slog.Any("err", err))
			e.pause(ctx)
			continue
		}
		if e.seen.heldFor(e.o.Identity) == 0 {
			return ctx.Err() == nil
		}
		began := time.Now()
		if err := e.watch(ctx, lease); err != nil && ctx.Err() == nil {
			e.o.Logger.Warn("Failed to watch the leader lease, will read it instead", slog.Any("err", err))
		}
		if e.seen.heldFor(e.o.Identity) == 0 {
			return ctx.Err() == nil
		}
		if time.Since(began) < e.timings().retry { // there is no watch to be had
			e.pause(ctx)
		}
	}
	return false
}

// watch returns when the Lease seems free, when the watch ends, or when ctx does.
func (e *Elector) watch(ctx context.Context, lease *coordinationv1.Lease) error {
	o := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", e.o.Config.ResourceName).String()}
	if lease != nil {
		o.ResourceVersion = lease.ResourceVersion
	}
	w, err := e.leases().Watch(ctx, o)
	if err != nil {
		return fmt.Errorf("watch lease %s: %w", e.leaseName(), err)
	}
	defer w.Stop()
	expiry := time.NewTimer(e.seen.heldFor(e.o.Identity))
	defer expiry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-expiry.C:
			return nil
		case event, ok := <-w.ResultChan():
			switch {
			case !ok: // watches end now and then
				return nil
			case event.Type == watch.Error:
				return fmt.Errorf("watch lease %s: %w", e.leaseName(), apierrors.FromObject(event.Object))
			case event.Type == watch.Deleted:
				continue // its holder is about to make it again
			}
			if lease, ok := event.Object.(*coordinationv1.Lease); ok {
				e.seen.see(lease)
			}
			left := e.seen.heldFor(e.o.Identity)
			if left == 0 {
				return nil
			}
			expiry.Reset(left)
		}
	}
}

func (e *Elector) get(ctx context.Context) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timings().request())
	defer cancel()
	lease, err := e.leases().Get(ctx, e.o.Config.ResourceName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get lease %s: %w", e.leaseName(), err)
	}
	return lease, nil
}

// pause between two tries of a candidate, jittered as client-go's.
func (e *Elector) pause(ctx context.Context) {
	timer := time.NewTimer(wait.Jitter(e.timings().retry, leaderelection.JitterFactor))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
