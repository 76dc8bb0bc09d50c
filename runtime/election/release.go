package election

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Release ends Run, waits for it, and gives the lease back if this process holds
// it and releaseOnExit is set, with its last writes for the next leader. Call it
// after everything that must not run without the lease has ended.
func (e *Elector) Release(ctx context.Context) error {
	e.mu.Lock()
	give := e.config.ReleaseOnExit && e.o.Config.Enabled
	if !e.running {
		if !closed(e.stopped) {
			close(e.stopped) // Run must not begin now
		}
		e.mu.Unlock()
		return nil
	}
	e.stop()
	e.mu.Unlock()
	select {
	case <-e.stopped:
	case <-ctx.Done():
		return fmt.Errorf("release lease %s: wait for the elector: %w", e.leaseName(), context.Cause(ctx))
	}
	if lease := e.seen.last(); !give || lease == nil || holder(lease) != e.o.Identity {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.timings().deadline)
	defer cancel()
	for {
		err := e.release(ctx)
		// A renewal may have been written though its answer was not waited for.
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

func (e *Elector) release(ctx context.Context) error {
	lease, err := e.get(ctx)
	if err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if holder(lease) != e.o.Identity {
		return nil // lost meanwhile
	}
	now := metav1.NewMicroTime(time.Now())
	lease.Spec = coordinationv1.LeaseSpec{
		HolderIdentity:       ptr.To(""),
		LeaseDurationSeconds: ptr.To[int32](1),
		AcquireTime:          &now,
		RenewTime:            &now,
		LeaseTransitions:     ptr.To(transitions(lease)),
	}
	if e.o.Written != nil {
		if err := annotate(lease, e.o.Written()); err != nil {
			return fmt.Errorf("release lease %s: %w", e.leaseName(), err)
		}
	}
	released, err := e.leases().Update(ctx, lease, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("release lease %s: %w", e.leaseName(), err)
	}
	e.seen.see(released)
	return nil
}
