package informers

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

const (
	// storePoll is how often a store's version is looked at while it is waited
	// for: client-go does not tell of bookmarks.
	storePoll = 5 * time.Millisecond
	// settleTimeout of a store that has events in its queue.
	settleTimeout = time.Second
	// writeGrace is the time that the event of a write may take, before what
	// is done for an event that need not come is done for it.
	writeGrace = 2 * time.Second
	// readGrace is the time that a watch may need to bring what a consistent
	// read has shown, before it is renewed.
	readGrace = 250 * time.Millisecond
	// renewInterval between two renewals of a watch that keeps a store back.
	// Longer than a hurried one, so that its bookmark can come.
	renewInterval = 5 * time.Second
	// readRetry after a consistent read that failed.
	readRetry = time.Second
	// snapshotLimit bounds what a consistent read costs.
	snapshotLimit = 500
)

// compare two versions of one resource; false when they are not comparable.
func compare(a, b string) (int, bool) {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return order, err == nil
}

// reached tells whether a store at version have is at least as new as want.
func reached(have, want string) bool {
	if want == "" {
		return true
	}
	if have == "" {
		return false
	}
	order, ok := compare(have, want)
	return !ok || order >= 0
}

// snapshot is what a consistent read of a resource shows.
type snapshot struct {
	version string
	// versions of all objects by key; nil when there are more than snapshotLimit.
	versions map[string]string
}

func (p *Pool) read(ctx context.Context, k key) (snapshot, error) {
	list, err := p.o.Metadata.Resource(k.gvr).Namespace(k.selection.Namespace).List(ctx,
		metav1.ListOptions{Limit: snapshotLimit, FieldSelector: k.selection.FieldSelector})
	if err != nil {
		return snapshot{}, fmt.Errorf("read the version of %s: %w", k.name(), err)
	}
	result := snapshot{version: list.ResourceVersion}
	if list.Continue != "" {
		return result, nil
	}
	result.versions = make(map[string]string, len(list.Items))
	for i := range list.Items {
		item := &list.Items[i]
		result.versions[cache.MetaObjectToName(item).String()] = item.ResourceVersion
	}
	return result, nil
}

// equals tells whether the store holds the same versions of the same objects.
func (s snapshot) equals(store cache.Store) bool {
	objects := store.List()
	if len(objects) != len(s.versions) {
		return false
	}
	for _, object := range objects {
		accessor, err := meta.Accessor(object)
		if err != nil || s.versions[cache.MetaObjectToName(accessor).String()] != accessor.GetResourceVersion() {
			return false
		}
	}
	return true
}

// waitForVersion of a write.
func (i *Informer) waitForVersion(ctx context.Context, version string) error {
	clock := i.shared.pool.o.Clock
	poll := clock.NewTicker(storePoll)
	defer poll.Stop()
	grace := clock.NewTimer(writeGrace)
	defer grace.Stop()
	for !reached(i.shared.version(), version) {
		select {
		case <-poll.C():
		case <-grace.C():
			// What the server holds now is no older than the write.
			return i.tolerate(i.catchUp(ctx, clock.Now()))
		case <-i.ended:
			return errInformerReleased
		case <-i.shared.context.Done():
			return i.shared.waitError("wait for a write to show", errPoolClosed)
		case <-ctx.Done():
			return i.shared.waitError("wait for a write to show", context.Cause(ctx))
		}
	}
	return nil
}

// CatchUp returns when the store holds what the API server held at since or
// later. It makes a request unless an earlier call has done so since then. It
// fails when ctx ends or the informer is released, and for a monitor also when
// the API server cannot be asked.
func (i *Informer) CatchUp(ctx context.Context, since time.Time) error { return i.catchUp(ctx, since) }

// catchUp with what the API server held at since.
func (i *Informer) catchUp(ctx context.Context, since time.Time) error {
	s := i.shared
	if err := i.waitForSync(ctx); err != nil {
		return err
	}
	select {
	case s.catchUp <- struct{}{}:
		defer func() { <-s.catchUp }()
	case <-i.ended:
		return errInformerReleased
	case <-s.context.Done():
		return s.waitError("catch up", errPoolClosed)
	case <-ctx.Done():
		return s.waitError("catch up", context.Cause(ctx))
	}
	if !s.caughtUp.Before(since) {
		return nil
	}
	for {
		began := s.pool.o.Clock.Now()
		want, err := s.pool.read(ctx, s.key)
		switch {
		case err == nil:
			if err := s.waitForSnapshot(ctx, i.ended, want); err != nil {
				return err
			}
			s.caughtUp = began
			return nil
		case apierrors.IsNotFound(err):
			return nil // not served any more: nobody can have written to it
		case i.monitor.Load() && ctx.Err() == nil:
			return fmt.Errorf("%w: %w", errUnknownFreshness, err)
		}
		s.pool.o.Logger.Debug("cannot tell how new a resource is; trying again", "resource", s.key.String(), "error", err)
		timer := s.pool.o.Clock.NewTimer(readRetry)
		select {
		case <-timer.C():
			continue
		case <-i.ended:
			err = errInformerReleased
		case <-s.context.Done():
			err = s.waitError("catch up", errPoolClosed)
		case <-ctx.Done():
			err = s.waitError("catch up", err)
		}
		timer.Stop()
		return err
	}
}

// tolerate that nobody can tell how new a monitored resource is: its lease
// does not wait for it.
func (i *Informer) tolerate(err error) error {
	if !errors.Is(err, errUnknownFreshness) {
		return err
	}
	i.shared.pool.o.Logger.Debug("cannot tell how new a monitored resource is", "resource", i.shared.key.String(), "error", err)
	return nil
}

// waitForSnapshot returns when the store holds want or something newer.
//
// A resource in which nothing happens has no events that would bring its store
// to the version of a read, and bookmarks come once a minute. So the objects
// are compared when want has them, and after readGrace the watch is made anew,
// as a short one that ends with a bookmark.
func (s *shared) waitForSnapshot(ctx context.Context, ended <-chan struct{}, want snapshot) error {
	clock := s.pool.o.Clock
	poll := clock.NewTicker(storePoll)
	defer poll.Stop()
	renew := clock.NewTimer(readGrace)
	defer renew.Stop()
	compared := ""
	for !reached(s.version(), want.version) {
		if want.versions != nil && s.version() != compared {
			compared = s.compareWith(ctx, want)
		}
		select {
		case <-poll.C():
		case <-renew.C():
			s.source.hurry.Store(true)
			if stream := s.source.current(); stream != nil {
				stream.finish(ctx)
			}
			renew.Reset(renewInterval)
		case <-ended:
			return errInformerReleased
		case <-s.context.Done():
			return s.waitError("catch up", errPoolClosed)
		case <-ctx.Done():
			return s.waitError("catch up", context.Cause(ctx))
		}
	}
	return nil
}

// compareWith moves the store to want's version when it holds exactly want's
// objects, and returns the store's version that was compared, "" when none was.
//
// The watch is held meanwhile. Events up to want's version that are still under
// way, such as an object's creation and deletion, lead to what the store holds
// already; they are left out, since they would take the store back in time.
func (s *shared) compareWith(ctx context.Context, want snapshot) (compared string) {
	stream := s.source.current()
	if stream == nil {
		return ""
	}
	stream.do(ctx, func() {
		if stream.initial || stream.version == "" || !s.settle(ctx, stream) {
			return
		}
		compared = s.version()
		if !reached(compared, want.version) && want.equals(s.informer.GetStore()) {
			stream.skip = want.version
			stream.bookmark(want.version)
		}
	})
	return compared
}

// settle waits until the store has taken in what stream has passed on.
func (s *shared) settle(ctx context.Context, stream *stream) bool {
	clock := s.pool.o.Clock
	poll := clock.NewTicker(storePoll)
	defer poll.Stop()
	timeout := clock.NewTimer(settleTimeout)
	defer timeout.Stop()
	for !reached(s.version(), stream.version) {
		select {
		case <-poll.C():
		case <-timeout.C():
			return false
		case <-stream.stopped:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// waitError says what was waited for, and what the informer suffers from.
func (s *shared) waitError(what string, cause error) error {
	if last := s.source.health.lastError(); last != "" {
		return fmt.Errorf("%s in %s: %w (%s)", what, s.key, cause, last)
	}
	return fmt.Errorf("%s in %s: %w", what, s.key, cause)
}
