package server

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
)

// ping stands in where there is no check, so that a path always has one.
const ping = "ping"

// health serves path and path/NAME. Reasons are logged, never sent: callers
// need not be known.
func (s *Server) health(r chi.Router, path string, included func(Check) bool) {
	kind := strings.TrimPrefix(path, "/")
	checks := func() []Check {
		checks := slices.DeleteFunc(slices.Clone(s.sources.Checks()), func(c Check) bool { return !included(c) })
		if len(checks) == 0 {
			checks = []Check{{Name: ping}}
		}
		return checks
	}
	get(r, path, func(w http.ResponseWriter, r *http.Request) { s.healthOfAll(w, r, kind, checks()) })
	get(r, path+"/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := chi.URLParam(r, "name")
		i := slices.IndexFunc(checks(), func(c Check) bool { return c.Name == name })
		if i < 0 {
			http.NotFound(w, r)
			return
		}
		if !s.passes(r, kind, checks()[i]) {
			http.Error(w, "internal server error: reason withheld", http.StatusInternalServerError)
			return
		}
		writeText(w, "ok")
	})
}

// healthOfAll answers ok, or with a line per check when one fails or ?verbose
// is given; ?exclude=NAME leaves one out.
func (s *Server) healthOfAll(w http.ResponseWriter, r *http.Request, kind string, checks []Check) {
	query := r.URL.Query()
	excluded := map[string]bool{}
	for _, name := range query["exclude"] {
		excluded[name] = false
	}
	var lines bytes.Buffer
	healthy := true
	for _, check := range checks {
		switch _, exclude := excluded[check.Name]; {
		case exclude:
			excluded[check.Name] = true
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", check.Name)
		case s.passes(r, kind, check):
			fmt.Fprintf(&lines, "[+]%s ok\n", check.Name)
		default:
			healthy = false
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", check.Name)
		}
	}
	if unknown := unmatched(excluded); len(unknown) > 0 {
		fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(unknown, ","))
	}
	switch {
	case !healthy:
		http.Error(w, lines.String()+kind+" check failed", http.StatusInternalServerError)
	case query.Has("verbose"):
		writeText(w, lines.String()+kind+" check passed\n")
	default:
		writeText(w, "ok")
	}
}

// unmatched are the quoted names that excluded no check.
func unmatched(excluded map[string]bool) []string {
	var names []string
	for name, matched := range excluded {
		if !matched {
			names = append(names, strconv.Quote(name))
		}
	}
	slices.Sort(names)
	return names
}

func (s *Server) passes(r *http.Request, kind string, check Check) bool {
	err := check.run(r.Context())
	s.slis.observe(check.Name, kind, err == nil)
	if err != nil {
		s.log.Log(r.Context(), verbosity(2), "Health check failed", "check", check.Name, "endpoint", kind, "err", err)
	}
	return err == nil
}

// run is one check's result. A panic is its own fault, not that of the others.
func (c Check) run(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	if c.Check == nil {
		return nil
	}
	return c.Check(ctx)
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	// The caller may have gone; nobody is left to tell.
	_, _ = w.Write([]byte(text))
}
