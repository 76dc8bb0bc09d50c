package servicecidr_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// ends of the ServiceCIDRs of a test, as a watch sees them.
type ends struct {
	mu    sync.Mutex
	names map[string]bool
}

func (w *world) watchEnds() *ends {
	w.t.Helper()
	seen := &ends{names: map[string]bool{}}
	harness.Follow(w.t, w.Admin.NetworkingV1().ServiceCIDRs(), metav1.ListOptions{}, func(event watch.EventType, cidr *networkingv1.ServiceCIDR) {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if event == watch.Deleted {
			seen.names[cidr.Name] = true
		}
	})
	return seen
}

func (e *ends) has(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.names[name]
}

// A reload at any moment changes nothing about where the cluster ends up: what
// is unused goes, what a Service needs stays, and each thing is written once.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen := w.watchEnds()
	const count = 16
	short, used := func(i int) string { return fmt.Sprintf("r-%d", i) }, func(i int) bool { return i%2 == 0 }
	stop := w.controller.Reload(rand.Uint64(), 50, 20)
	for i := range count {
		w.create(short(i), w.v4(fmt.Sprintf("%d.0/24", i)))
	}
	for i := range count {
		w.ready(short(i))
		if used(i) {
			w.makeService(short(i), w.v4(fmt.Sprintf("%d.7", i)))
		}
	}
	for i := range count {
		w.delete(short(i))
	}
	for i := 0; i < count; i += 2 {
		w.held(short(i))
	}
	for i := 1; i < count; i += 2 {
		w.gone(short(i))
	}
	stop()
	for i := range count {
		if used(i) {
			w.held(short(i))
			if seen.has(w.name(short(i))) {
				t.Errorf("%s went although a service needs it", short(i))
			}
			w.deleteService(short(i))
		}
	}
	for i := range count {
		w.gone(short(i))
		want := 3 // the finalizer, the condition, and the end of the finalizer
		if used(i) {
			want++
		}
		// The answer to a patch that lets an object go does not say the version of
		// its end. So a start just after it may try again, in vain.
		inVain := func(r apiproxy.Request) bool { return r.Code == http.StatusNotFound && r.Subresource == "" }
		writes := slices.DeleteFunc(w.writes(short(i)), inVain)
		if len(writes) != want {
			t.Errorf("%d writes, want %d: %+v", len(writes), want, writes)
		}
		for _, write := range writes {
			if write.Code != http.StatusOK {
				t.Errorf("write %+v", write)
			}
		}
	}
}
