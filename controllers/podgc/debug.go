package podgc

import (
	"net/http"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
)

// debugHandler serves nothing but the summary.
type debugHandler struct{ c *collector }

var _ controller.Summarizer = debugHandler{}

// ServeHTTP implements http.Handler.
func (h debugHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// summary of what is known, as JSON.
type summary struct {
	// LastPass is when the last pass ended; null before the first.
	LastPass *time.Time `json:"lastPass"`
	// FinishedPods that exist, and how many may.
	FinishedPods           int   `json:"finishedPods"`
	TerminatedPodThreshold int64 `json:"terminatedPodThreshold"`
	// MissingNodes that pods are bound to, and since when they are missing.
	MissingNodes map[string]time.Time `json:"missingNodes"`
}

// Summary implements controller.Summarizer.
func (h debugHandler) Summary() any {
	s := summary{
		LastPass:               h.c.passed.Load(),
		TerminatedPodThreshold: h.c.threshold.Load(),
		MissingNodes:           h.c.quarantine.nodes(),
	}
	if pods, err := candidatesOf(h.c.pods, finishedPods); err == nil {
		s.FinishedPods = len(pods)
	}
	return s
}
