package informers_test

import (
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/goroutines"
)

// connections stay open for the next client, as client-go wants it.
var connections = goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run")

// Not parallel: it counts the goroutines of the process.
func TestFiveHundredCyclesLeaveNothing(t *testing.T) {
	for _, test := range []struct {
		name   string
		linger time.Duration
		// made and open are the watches of the resource whose only user comes and goes.
		made, open int
	}{
		{"informers stop each time", -1, 500, 0},
		{"informers linger", time.Hour, 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			cp := controlplane.Shared(t)
			before := goleak.IgnoreCurrent()
			pool, counted := newPool(t, cp.AdminConfig(), informers.Options{Linger: test.linger})
			keeper := pool.Lease("keeper")
			kept := mustLease(t, keeper, configMaps)
			mustSync(t, keeper)

			var settled int
			for n := range 500 {
				lease := pool.Lease("controller")
				own, err := lease.MetadataInformer(secrets)
				if err != nil {
					t.Fatal(err)
				}
				for _, informer := range []*informers.Informer{mustLease(t, lease, configMaps), own} {
					if err := informer.AddIndexers(cache.Indexers{"none": func(any) ([]string, error) { return nil, nil }}); err != nil {
						t.Fatal(err)
					}
					if err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {}}); err != nil {
						t.Fatal(err)
					}
				}
				mustSync(t, lease)
				lease.Release()
				if n == 20 {
					eventually(t, "ended informers close their watches", func() bool { return counted.openWatches() == 1+test.open })
					settled = runtime.NumGoroutine()
				}
			}
			eventually(t, "ended informers close their watches", func() bool { return counted.openWatches() == 1+test.open })
			// A few more or less are the HTTP client's.
			eventually(t, "as few goroutines as after 20 cycles", func() bool { return runtime.NumGoroutine() <= settled+5 })
			if _, watches, _ := counted.counts("configmaps"); watches != 1 {
				t.Errorf("%d watches of the resource that is kept, want 1", watches)
			}
			if _, watches, _ := counted.counts("secrets"); watches != test.made {
				t.Errorf("%d watches of the other, want %d", watches, test.made)
			}
			if got := len(kept.Indexer().GetIndexers()); got != 2 {
				t.Errorf("%d indexes, want 2", got)
			}
			keeper.Release()
			pool.Close()
			if err := goroutines.Left(before, connections); err != nil {
				t.Error(err)
			}
		})
	}
}
