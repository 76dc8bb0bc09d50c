package informers

import (
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
)

// outageLogInterval is how often it is said at most that the API server cannot be reached.
const outageLogInterval = time.Minute

// health of one informer's requests. What is known to fail is logged when it
// begins and when it ends, not with every attempt.
type health struct {
	key    key
	outage *outage
	logger *slog.Logger

	mu  sync.Mutex
	err error
}

func (h *health) failed(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the reflector starts anew from a list, which is no fault
	}
	h.mu.Lock()
	before := h.err
	h.err = err
	h.mu.Unlock()
	if unreachable(err) {
		h.outage.begins(err)
		return
	}
	if before != nil && !unreachable(before) && apierrors.ReasonForError(before) == apierrors.ReasonForError(err) {
		return
	}
	h.logger.Warn("informer cannot list or watch; its store keeps what it has",
		"resource", h.key.String(), "error", err)
}

func (h *health) works() {
	h.mu.Lock()
	before := h.err
	h.err = nil
	h.mu.Unlock()
	if before == nil {
		return
	}
	h.outage.ends()
	if !unreachable(before) {
		h.logger.Info("informer lists and watches again", "resource", h.key.String())
	}
}

func (h *health) lastErr() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

func (h *health) lastError() string {
	if err := h.lastErr(); err != nil {
		return err.Error()
	}
	return ""
}

// outage is an API server that cannot be reached: one fault of all informers,
// so that it is logged once.
type outage struct {
	logger *slog.Logger
	clock  clock.PassiveClock

	mu     sync.Mutex
	on     bool
	logged time.Time
}

func (o *outage) begins(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.on || !o.logged.IsZero() && o.clock.Since(o.logged) < outageLogInterval {
		return
	}
	o.on, o.logged = true, o.clock.Now()
	o.logger.Warn("API server cannot be reached; informers keep what they have", "error", err)
}

func (o *outage) ends() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.on {
		o.on = false
		o.logger.Info("API server can be reached again")
	}
}
