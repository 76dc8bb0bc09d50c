package keymaterial

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
)

// Status of a Source, without anything secret.
type Status struct {
	// Material is the name of the source.
	Material string       `json:"material"`
	Files    []FileStatus `json:"files"`
	LoadedAt time.Time    `json:"loadedAt"`
	// NotBefore and NotAfter of what is in use; nil when there is no limit.
	NotBefore *time.Time `json:"notBefore,omitempty"`
	NotAfter  *time.Time `json:"notAfter,omitempty"`
	// Problem of what is in use, which has expired or is not valid yet.
	Problem  string   `json:"problem,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Rejected is why what is on disk is not in use; nil when it is.
	Rejected *Rejection `json:"rejected"`
}

// FileStatus is one file of a Source.
type FileStatus struct {
	Path string `json:"path"`
	// SHA256 of the content in use, in hex; empty for secret files.
	SHA256 string `json:"sha256,omitempty"`
}

// Rejection of changed files.
type Rejection struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// Status of the source now.
func (s *Source[T]) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{
		Material:  s.o.Name,
		LoadedAt:  s.current.at,
		NotBefore: orNil(s.current.notBefore),
		NotAfter:  orNil(s.current.notAfter),
		Warnings:  s.current.warnings,
		Rejected:  s.rejected,
	}
	for i, name := range s.origin.names() {
		file := FileStatus{Path: name, SHA256: s.current.digests[i]}
		if i < len(s.o.Files) && s.o.Files[i].Secret {
			file.SHA256 = ""
		}
		status.Files = append(status.Files, file)
	}
	if err := s.current.check(s.clock.Now()); err != nil {
		status.Problem = s.describe(err).Error()
	}
	return status
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// Report is a controller.Controller's Handler and summary of its sources.
type Report []interface{ Status() Status }

var _ controller.Summarizer = Report{}

// Summary implements controller.Summarizer.
func (r Report) Summary() any {
	statuses := make([]Status, 0, len(r))
	for _, source := range r {
		statuses = append(statuses, source.Status())
	}
	return map[string]any{"keyMaterial": statuses}
}

// ServeHTTP serves the summary at /keymaterial.
func (r Report) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if request.URL.Path != "/keymaterial" {
		http.NotFound(w, request)
		return
	}
	body, err := json.Marshal(r.Summary())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body) // the caller has gone
}
