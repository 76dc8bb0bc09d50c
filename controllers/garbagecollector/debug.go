package garbagecollector

import (
	"net/http"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
)

// debugHandler serves the graph at /graph, all of it or what is connected with
// the objects of ?uid=, as kube-controller-manager does.
type debugHandler struct{ c *collector }

var _ controller.Summarizer = debugHandler{}

// ServeHTTP implements http.Handler.
func (h debugHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/graph" {
		http.NotFound(w, r)
		return
	}
	var uids []types.UID
	for _, uid := range r.URL.Query()["uid"] {
		uids = append(uids, types.UID(uid))
	}
	w.Header().Set("Content-Type", "text/vnd.graphviz")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := writeDOT(w, h.c.graph.drawing(uids...)); err != nil {
		h.c.logger.Debug("The graph was not sent", "err", err)
	}
}

// summary of the graph, as JSON.
type summary struct {
	Nodes int `json:"nodes"`
	// Edges from dependents to owners.
	Edges int `json:"edges"`
	// Virtual nodes are known from references only.
	Virtual int `json:"virtual"`
	// Events that the monitors have brought in.
	Events   int64 `json:"events"`
	Monitors int   `json:"monitors"`
	// Unsynced monitors have not shown all of their resource yet.
	Unsynced []string `json:"unsynced"`
	// Ready tells that objects are looked at; Complete, that all monitors have
	// synced or have been waited for.
	Ready    bool `json:"ready"`
	Complete bool `json:"complete"`
}

// Summary implements controller.Summarizer.
func (h debugHandler) Summary() any {
	var s summary
	s.Nodes, s.Edges, s.Virtual, s.Events = h.c.graph.size()
	s.Monitors, s.Unsynced = h.c.monitors.Unsynced()
	s.Ready, s.Complete = h.c.gate.state()
	return s
}
