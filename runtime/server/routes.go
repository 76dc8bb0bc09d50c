package server

import (
	"net/http"
	"net/http/pprof"

	"github.com/go-chi/chi/v5"
)

// The health endpoints.
const (
	healthz = "/healthz"
	livez   = "/livez"
	readyz  = "/readyz"
)

func isHealth(path string) bool { return path == healthz || path == livez || path == readyz }

func (s *Server) routes() http.Handler {
	r := chi.NewRouter()
	s.health(r, healthz, func(Check) bool { return true })
	s.health(r, livez, func(c Check) bool { return c.Live })
	s.health(r, readyz, func(c Check) bool { return c.Ready })

	get(r, "/", s.statusPage)
	get(r, "/configz", s.configz)
	get(r, "/configz/status", s.configStatus)
	get(r, "/debug/controllers", s.controllers)
	get(r, "/debug/controllers/{name}", s.controller)
	r.HandleFunc("/debug/controllers/{name}/*", s.controllerHandler)
	get(r, "/debug/reloads", s.reloads)
	get(r, "/debug/leader", s.leader)
	get(r, "/debug/informers", s.informers)

	get(r, "/debug/flags/v", s.logLevel)
	r.Put("/debug/flags/v", s.setLogLevel)

	get(r, "/metrics", s.sources.Metrics.ServeHTTP)
	get(r, "/metrics/slis", s.slis.handler.ServeHTTP)
	r.Delete("/metrics/slis", s.slis.reset)

	r.Route(pprofPath, func(r chi.Router) {
		r.Use(s.whenProfiling)
		r.Get("/profile", pprof.Profile)
		r.Get("/trace", pprof.Trace)
		get(r, "/symbol", pprof.Symbol)
		r.Post("/symbol", pprof.Symbol)
		get(r, "/*", pprof.Index)
	})
	get(r, pprofPath, s.whenProfiling(http.RedirectHandler(pprofPath+"/", http.StatusFound)).ServeHTTP)
	return r
}

func get(r chi.Router, pattern string, h http.HandlerFunc) {
	r.Get(pattern, h)
	r.Head(pattern, h)
}

// whenProfiling hides next unless profiling is on.
func (s *Server) whenProfiling(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.profiling.Load() {
			http.NotFound(w, r)
			return
		}
		// Its index has styles of its own.
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}
