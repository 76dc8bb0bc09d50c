package informers_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// compaction ends the watches and lets none begin until it is over. Those that
// go on where another was are then told that this is too long ago.
type compaction struct {
	watches context.Context //nolint:containedctx // of those that were open at its beginning
	begin   context.CancelFunc
	held    atomic.Int32 // that wait to begin
	over    chan struct{}
}

func newCompaction() *compaction {
	ctx, cancel := context.WithCancel(context.Background())
	return &compaction{watches: ctx, begin: cancel, over: make(chan struct{})}
}

func (c *compaction) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		query := request.URL.Query()
		if !query.Has("watch") {
			return next.RoundTrip(request)
		}
		if c.watches.Err() == nil {
			ctx, cancel := context.WithCancel(request.Context())
			context.AfterFunc(c.watches, cancel)
			return next.RoundTrip(request.WithContext(ctx))
		}
		c.held.Add(1)
		select {
		case <-c.over:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
		if query.Has("sendInitialEvents") {
			return next.RoundTrip(request)
		}
		return &http.Response{
			StatusCode: http.StatusGone, Body: io.NopCloser(strings.NewReader("too old")), Request: request, Header: http.Header{},
		}, nil
	})
}

func TestAReplacedObjectIsDeletedAndAdded(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	client, namespace := adminClient(t, cp).CoreV1().ConfigMaps(cp.Namespace(t)), ""
	create := func(name string) string {
		t.Helper()
		created, err := client.Create(t.Context(), configMap("", name), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		namespace = created.Namespace
		return string(created.UID)
	}
	first, kept := create("replaced"), create("changed")

	gone := newCompaction()
	config := rest.CopyConfig(cp.AdminConfig())
	config.Wrap(gone.wrap)
	pool, _ := newPool(t, config, informers.Options{})
	lease := pool.Lease("controller")
	typed := mustLease(t, lease, configMaps)
	metadata, err := lease.MetadataInformer(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	histories := []*history{{namespace: namespace}, {namespace: namespace}}
	for i, informer := range []*informers.Informer{typed, metadata} {
		if err := informer.AddEventHandler(histories[i]); err != nil {
			t.Fatal(err)
		}
	}
	mustSync(t, lease)

	gone.begin()
	eventually(t, "no watch is open", func() bool { return int(gone.held.Load()) == len(histories) })
	if err := client.Delete(t.Context(), "replaced", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second := create("replaced")
	changed := configMap("", "changed")
	changed.Data = map[string]string{"key": "value"}
	if _, err := client.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	close(gone.over)

	deletion, addition := "deleted unwatched replaced "+first, "added replaced "+second
	want := []string{"initial changed " + kept, "initial replaced " + first, deletion, addition, "changed changed " + kept}
	slices.Sort(want)
	for _, h := range histories {
		eventually(t, "the informer shows what has happened", func() bool { return len(h.events()) >= len(want) })
		events := h.events()
		inOrder := slices.Index(events, deletion) < slices.Index(events, addition)
		if sorted := slices.Sorted(slices.Values(events)); !slices.Equal(sorted, want) || !inOrder {
			t.Errorf("events %q, want %q, the deletion before the addition", events, want)
		}
	}
}

// history of the objects of a namespace.
type history struct {
	namespace string
	mu        sync.Mutex
	seen      []string
}

func (h *history) events() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

func (h *history) note(what string, obj any) {
	object, err := meta.Accessor(obj)
	if err != nil || object.GetNamespace() != h.namespace || object.GetName() == "kube-root-ca.crt" {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, what+" "+object.GetName()+" "+string(object.GetUID()))
}

func (h *history) OnAdd(obj any, isInInitialList bool) {
	if isInInitialList {
		h.note("initial", obj)
	} else {
		h.note("added", obj)
	}
}

func (h *history) OnUpdate(_, obj any) { h.note("changed", obj) }

func (h *history) OnDelete(obj any) {
	tombstone, ok := obj.(cache.DeletedFinalStateUnknown)
	if !ok {
		h.note("deleted", obj)
		return
	}
	if object, err := meta.Accessor(tombstone.Obj); err == nil && tombstone.Key == h.namespace+"/"+object.GetName() {
		h.note("deleted unwatched", tombstone.Obj)
	}
}
