package resourcequota

import (
	"net/http"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
)

// debugHandler tells what the controller counts.
type debugHandler struct{ c *quotaController }

var _ controller.Summarizer = debugHandler{}

// ServeHTTP implements http.Handler.
func (debugHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// summary as JSON.
type summary struct {
	Quotas   int `json:"quotas"`
	Monitors int `json:"monitors"`
	// Unsynced monitors have not shown all of their resource yet.
	Unsynced []string `json:"unsynced"`
}

// Summary implements controller.Summarizer.
func (h debugHandler) Summary() any {
	s := summary{Quotas: len(h.c.books.all())}
	s.Monitors, s.Unsynced = h.c.monitors.Unsynced()
	return s
}
