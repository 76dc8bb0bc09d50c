package server

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// requests are the requests under way, so that Run can end after them.
type requests struct {
	// ctx is the parent of every request's context; cancel ends them all.
	ctx    context.Context
	cancel context.CancelFunc

	mu    sync.Mutex
	count int
	idle  chan struct{}
}

func newRequests() *requests {
	r := &requests{}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

func (r *requests) counted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.add(1)
		defer r.add(-1)
		next.ServeHTTP(w, req)
	})
}

func (r *requests) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count += n
	if r.count == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// wait returns when no request is under way, or how many are after timeout.
func (r *requests) wait(timeout time.Duration) int {
	r.mu.Lock()
	if r.count == 0 {
		r.mu.Unlock()
		return 0
	}
	idle := make(chan struct{})
	r.idle = idle
	r.mu.Unlock()
	select {
	case <-idle:
		return 0
	case <-time.After(timeout):
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.count
	}
}
