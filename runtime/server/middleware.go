package server

import (
	"context"
	"errors"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5/middleware"
)

const (
	// bodyTimeout bounds the time in which a request's body must arrive.
	bodyTimeout  = 10 * time.Second
	maxBodyBytes = 64 << 10
	// requestTimeout bounds a request's context, writeTimeout its answer.
	// Profiles take as long as was asked for.
	requestTimeout = 30 * time.Second
	writeTimeout   = 45 * time.Second

	pprofPath = "/debug/pprof"
)

// wrap puts around next what holds for every request.
func (s *Server) wrap(next http.Handler) http.Handler {
	return s.requests.counted(s.observed(withHeaders(limited(canonical(next)))))
}

// writeError tells no more than that something is wrong.
func writeError(w http.ResponseWriter) {
	http.Error(w, "internal server error: see the log", http.StatusInternalServerError)
}

// observed logs requests and turns a panic into an error of this request alone.
func (s *Server) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		start := time.Now()
		defer func() {
			// The way to cut a connection off, not a fault.
			p := recover()
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) //nolint:forbidigo // net/http's way
			} else if p != nil {
				s.log.Error("Panic in a request", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
				if ww.Status() != 0 {
					// Half an answer must not look like a whole one.
					panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way
				}
				writeError(ww)
			}
			s.log.Log(r.Context(), verbosity(3), "HTTP", "method", r.Method, "path", r.URL.Path, "code", ww.Status(),
				"took", time.Since(start), "remote", r.RemoteAddr)
		}()
		next.ServeHTTP(ww, r)
	})
}

// withHeaders keeps answers out of caches and browsers from guessing.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		next.ServeHTTP(w, r)
	})
}

// limited bounds what one request can take. What a connection can take is
// bounded by http.Server.
func limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		var read, write time.Time
		now := time.Now()
		if r.ContentLength != 0 {
			read = now.Add(bodyTimeout)
		}
		if !strings.HasPrefix(r.URL.Path, pprofPath) {
			write = now.Add(writeTimeout)
			ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
			defer cancel()
			r = r.WithContext(ctx)
		}
		// Zero takes back what an earlier request of the connection set.
		// Writers without deadlines, as in tests, have no connection to hold up.
		err := errors.Join(control.SetReadDeadline(read), control.SetWriteDeadline(write))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}

// canonical refuses paths that can be read in two ways, so that what is
// authorized is what is served.
func canonical(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := r.URL.Path
		clean := path.Clean(p)
		if strings.HasSuffix(p, "/") && clean != "/" {
			clean += "/"
		}
		if !strings.HasPrefix(p, "/") || p != clean {
			http.Error(w, "path is not canonical", http.StatusBadRequest)
			return
		}
		// The router would prefer it.
		r.URL.RawPath = ""
		next.ServeHTTP(w, r)
	})
}
