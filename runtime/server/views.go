package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/munnerz/goautoneg"
	"sigs.k8s.io/yaml"

	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// configz is the running configuration: as JSON keyed by its API group, or,
// with ?format=yaml, as a file that can be used as such.
func (s *Server) configz(w http.ResponseWriter, r *http.Request) {
	running := s.sources.Config().Running
	if running == nil || running.Config == nil {
		http.Error(w, "no configuration has been loaded yet", http.StatusServiceUnavailable)
		return
	}
	if r.URL.Query().Get("format") == "yaml" {
		body, err := configYAML(running)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/yaml")
		// The caller may have gone; nobody is left to tell.
		_, _ = w.Write(body)
		return
	}
	s.respond(w, r, func() any {
		return map[string]any{schema.Group: running.Config}
	}, configPage)
}

func configYAML(running *config.Snapshot) ([]byte, error) {
	body, err := yaml.Marshal(running.Config)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	head := "# Running since " + running.LoadedAt.UTC().Format(time.RFC3339) + "."
	if running.Digest != "" {
		head += " sha256 of its file: " + running.Digest
	}
	return append([]byte(head+"\n"), body...), nil
}

func (s *Server) configStatus(w http.ResponseWriter, r *http.Request) {
	s.respond(w, r, func() any { return newConfigStatusJSON(s.sources.Config()) }, configPage)
}

func (s *Server) controllers(w http.ResponseWriter, r *http.Request) {
	s.respond(w, r, func() any {
		list := []controllerJSON{}
		for _, c := range s.sources.Controllers() {
			list = append(list, newControllerJSON(c))
		}
		return map[string]any{"controllers": list}
	}, controllersPage)
}

func (s *Server) controller(w http.ResponseWriter, r *http.Request) {
	c, ok := s.find(chi.URLParam(r, "name"))
	if !ok {
		http.NotFound(w, r)
		return
	}
	s.respond(w, r, func() any { return s.controllerDetail(c) }, controllerPage)
}

func (s *Server) find(name string) (supervisor.Status, bool) {
	all := s.sources.Controllers()
	i := slices.IndexFunc(all, func(c supervisor.Status) bool { return c.Name == name })
	if i < 0 {
		return supervisor.Status{}, false
	}
	return all[i], true
}

func (s *Server) controllerDetail(c supervisor.Status) controllerDetailJSON {
	detail := controllerDetailJSON{
		controllerJSON:     newControllerJSON(c),
		LongestSeconds:     seconds(c.Work.Longest),
		LastReconcileError: c.Work.LastError,
		Informers:          listed(c.Informers),
	}
	handler := s.sources.ControllerHandler(c.Name)
	detail.Debug = handler != nil
	if summarizer, ok := handler.(controller.Summarizer); ok {
		detail.Summary = summarizer.Summary()
	}
	if running := s.sources.Config().Running; running != nil && running.Config != nil {
		detail.Config = running.Config.Controllers.Sections[c.Name]
	}
	return detail
}

// controllerHandler serves the controller's own handler below its path.
func (s *Server) controllerHandler(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "name")
	h := s.sources.ControllerHandler(name)
	if h == nil {
		http.NotFound(w, r)
		return
	}
	http.StripPrefix("/debug/controllers/"+name, h).ServeHTTP(w, r)
}

func (s *Server) reloads(w http.ResponseWriter, r *http.Request) {
	s.respond(w, r, func() any {
		list := []reloadJSON{}
		for _, reload := range s.sources.Reloads() {
			list = append(list, newReloadJSON(reload))
		}
		return map[string]any{"reloads": list}
	}, reloadsPage)
}

func (s *Server) leader(w http.ResponseWriter, r *http.Request) {
	s.respond(w, r, func() any { return newLeaderJSON(s.sources.Election()) }, leaderPage)
}

func (s *Server) informers(w http.ResponseWriter, r *http.Request) {
	s.respond(w, r, func() any { return map[string]any{"informers": listed(s.sources.Informers())} }, informersPage)
}

// respond sends the JSON form to tools, and the page to browsers. ?format=json
// and ?format=html choose in spite of the Accept header.
func (s *Server) respond(w http.ResponseWriter, r *http.Request, form func() any, p page) {
	w.Header().Set("Vary", "Accept")
	switch format := r.URL.Query().Get("format"); format {
	case "json":
	case "html":
		s.render(w, r, p)
		return
	case "":
		if wantsHTML(r) {
			s.render(w, r, p)
			return
		}
	default:
		http.Error(w, fmt.Sprintf("format %q is not known here: use json or html", format), http.StatusBadRequest)
		return
	}
	writeJSON(w, http.StatusOK, form())
}

// wantsHTML tells whether the caller prefers HTML to JSON, as browsers do.
func wantsHTML(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return accept != "" && goautoneg.Negotiate(accept, []string{"application/json", "text/html"}) == "text/html"
}
