package podgc

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
)

// slowServer takes a second for each request, knows no nodes, and deletes every pod.
type slowServer struct {
	mu                  sync.Mutex
	current, most, pods int
}

// RoundTrip implements http.RoundTripper.
func (s *slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.current++
	s.most = max(s.most, s.current)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current--
	code, body := http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
	if r.Method == http.MethodDelete {
		s.pods++
		code, body = http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	}
	return &http.Response{
		StatusCode: code, Request: r, Body: io.NopCloser(strings.NewReader(body)),
		Header: http.Header{"Content-Type": []string{"application/json"}},
	}, nil
}

// Many nodes with many pods vanish with a rack.
func TestRequestsOfAPassAreBoundedOverAllNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &slowServer{}
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://localhost", Transport: server, QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		metrics, err := registerMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Nodes())
		if err := pods.AddIndexers(candidates()); err != nil {
			t.Fatal(err)
		}
		const count = 4 * atOnce
		for i := range count {
			err := pods.Add(pod(fmt.Sprint("p-", i), func(p *v1.Pod) {
				p.UID, p.Spec.NodeName, p.Status.Phase = types.UID(fmt.Sprint(i)), fmt.Sprint("n-", i%4), v1.PodSucceeded
			}))
			if err != nil {
				t.Fatal(err)
			}
		}
		c := &collector{
			client: client, logger: slog.New(slog.DiscardHandler), clock: clock.RealClock{}, metrics: metrics,
			pods: pods, nodes: corelisters.NewNodeLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})),
			quarantine: quarantine{since: map[string]time.Time{}},
		}
		for range 2 {
			if _, err := c.collect(t.Context(), everything); err != nil {
				t.Fatal(err)
			}
			time.Sleep(quarantineTime)
		}
		if server.most > atOnce {
			t.Errorf("%d requests at once, want %d at most", server.most, atOnce)
		}
		if server.pods != count {
			t.Errorf("%d pods were deleted, want %d", server.pods, count)
		}
	})
}
