package harness

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Source is a client of one resource: typed, dynamic, or of metadata only.
type Source[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Follow calls note with each object there is, as added, and then with each
// event, one after the other, so that a test misses no state of any object.
// Options may select some. It ends with the test or when stop is called; no
// call of note outlasts stop. A connection that is lost is made again where it
// was. The test fails when events are lost nevertheless: what has not been seen
// would prove nothing.
func Follow[T, L runtime.Object](t testing.TB, source Source[L], options metav1.ListOptions, note func(watch.EventType, T)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	list, err := source.List(ctx, options)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	events, err := watchtools.NewRetryWatcherWithContext(ctx, accessor.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, from metav1.ListOptions) (watch.Interface, error) {
			from.LabelSelector, from.FieldSelector = options.LabelSelector, options.FieldSelector
			return source.Watch(ctx, from)
		},
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	if err := meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(T)
		if !ok {
			return fmt.Errorf("a %T is in it", item)
		}
		note(watch.Added, object)
		return nil
	}); err != nil {
		t.Errorf("read the list: %v", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			switch object, ok := event.Object.(T); {
			case ctx.Err() != nil:
			case ok:
				note(event.Type, object)
			default:
				t.Errorf("the watch broke: %+v", event.Object)
			}
		}
		if ctx.Err() == nil {
			t.Error("the watch ended")
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}
