package election

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Leases stands between an attempt's elector and the API server.
func (a *attempt) Leases(namespace string) coordinationv1client.LeaseInterface {
	return &leases{LeaseInterface: a.e.o.Leases.Leases(namespace), attempt: a}
}

// leases has the three calls that the elector makes.
type leases struct {
	coordinationv1client.LeaseInterface
	attempt *attempt
}

// Get shows a candidate an expired Lease without its holder. The elector would
// begin to watch for expiry only now, but this process has watched before. A
// leader that finds another holder, or none, has lost: somebody may have led
// meanwhile.
func (l *leases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	a := l.attempt
	if a.superseded.Load() {
		return a.e.seen.last().DeepCopy(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.timings.request())
	defer cancel()
	lease, err := l.LeaseInterface.Get(ctx, name, o)
	if err == nil {
		a.e.seen.see(lease.DeepCopy())
	} else if !apierrors.IsNotFound(err) {
		a.fail(err)
		return lease, err
	}
	if a.leads.Load() {
		if err == nil && holder(lease) != a.e.o.Identity {
			a.cancel()
			return lease, fmt.Errorf("%w: %q", errHeld, holder(lease))
		}
		return lease, err
	}
	if a.e.seen.heldFor(a.e.o.Identity) > 0 {
		a.fail(errHeld)
		return lease, errHeld
	}
	if err != nil {
		return lease, err // the elector creates the Lease
	}
	a.handover.marks, a.handover.known = handedOver(lease)
	if holder(lease) != a.e.o.Identity {
		lease.Spec.HolderIdentity = nil
	}
	return lease, nil
}

func (l *leases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.write(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.LeaseInterface.Create(ctx, lease, o)
	})
}

func (l *leases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if l.attempt.superseded.Load() {
		l.attempt.cancel()
		return lease, nil // as if renewed, and the elector returns
	}
	lease = lease.DeepCopy()
	delete(lease.Annotations, writtenAnnotation) // it was for whoever takes the Lease, and is taken
	return l.write(ctx, func(ctx context.Context) (*coordinationv1.Lease, error) {
		return l.LeaseInterface.Update(ctx, lease, o)
	})
}

// write extends the fence when the Lease was written, counted from before the
// request was sent: nobody can have seen it earlier.
func (l *leases) write(ctx context.Context,
	send func(context.Context) (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	a := l.attempt
	ctx, cancel := context.WithTimeout(ctx, a.timings.request())
	defer cancel()
	until := time.Now().Add(a.timings.fence())
	// When the answer is lost the Lease may have been written all the same,
	// with a shorter duration than before.
	if deadline := a.e.o.Fence.Deadline(); !deadline.IsZero() && until.Before(deadline) {
		a.e.extendFence(a, until)
	}
	written, err := send(ctx)
	if err != nil {
		a.fail(err)
		return written, err
	}
	a.e.seen.see(written.DeepCopy())
	a.e.extendFence(a, until)
	a.leads.Store(true)
	select {
	case a.renewed <- struct{}{}:
	default:
	}
	return written, nil
}
