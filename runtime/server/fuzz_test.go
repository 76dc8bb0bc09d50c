package server

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Whatever is asked for, an anonymous caller sees health alone, and nobody
// makes the server fail.
func FuzzRequest(f *testing.F) {
	sources := sample()
	sources.Checks = func() []Check { return []Check{{Name: "leaderElection", Live: true, Check: passing}} }
	s, err := New(Options{Sources: sources, Logger: discard, Config: schema.NewScheme().Default().Server})
	if err != nil {
		f.Fatal(err)
	}
	for _, target := range slices.Concat(guardedPaths, openPaths, []string{
		"/healthz/..%2fconfigz", "/livez%2f..%2f..%2fmetrics", "/healthz/%2e%2e/configz", "/healthz;/configz", "/LIVEZ", "//livez", "/livez//",
		"/healthz?verbose&exclude=%00&exclude=%22", "/healthz?exclude=a;b", "/debug/controllers/%2f", "/debug/flags/v/", "*", "",
		"/configz?format=%ff", "/debug/controllers/deployment-controller/../../../livez",
	}) {
		path, query, _ := strings.Cut(target, "?")
		f.Add("GET", path, query, browser)
		f.Add("PUT", path, query, "application/json;q=x,*/*;q=0.1,")
	}
	f.Fuzz(func(t *testing.T, method, path, query, accept string) {
		decoded, err := url.PathUnescape(path)
		if err != nil || strings.HasPrefix(decoded, pprofPath) {
			// Profiles are not ours, and take long.
			return
		}
		ask := func(h http.Handler) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader("1"))
			r.Method = method
			r.URL = &url.URL{Path: decoded, RawPath: path, RawQuery: query}
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		answer := ask(s.Handler())
		if answer.Code >= 500 {
			t.Errorf("%s %q?%q: %d %s", method, path, query, answer.Code, answer.Body)
		}
		for _, header := range []string{"Cache-Control", "X-Content-Type-Options", "Content-Security-Policy"} {
			if answer.Header().Get(header) == "" {
				t.Errorf("%s %q: no %s", method, path, header)
			}
		}
		anonymous := ask(s.closed)
		first, _, _ := strings.Cut(strings.TrimPrefix(decoded, "/"), "/")
		open := isHealth("/"+first) && !slices.Contains(strings.Split(decoded, "/"), "..")
		if !open && anonymous.Code != http.StatusUnauthorized && anonymous.Code != http.StatusBadRequest {
			t.Errorf("anonymous %s %q: %d %s", method, path, anonymous.Code, anonymous.Body)
		}
		if open && anonymous.Code == http.StatusOK && !strings.HasPrefix(anonymous.Body.String(), "ok") &&
			!strings.HasPrefix(anonymous.Body.String(), "[") && anonymous.Body.Len() > 0 {
			t.Errorf("anonymous %s %q saw %s", method, path, anonymous.Body)
		}
	})
}

func FuzzWantsHTML(f *testing.F) {
	for _, accept := range []string{"", browser, "*/*", "text/html", "text/html;q=0", "application/json, text/html", ",;=/", "text/html;q=nan"} {
		f.Add(accept)
	}
	f.Fuzz(func(t *testing.T, accept string) {
		r := &http.Request{Header: http.Header{"Accept": {accept}}}
		if wantsHTML(r) && !strings.ContainsAny(accept, "*t") {
			t.Errorf("%q asks for HTML", accept)
		}
	})
}

func TestWantsHTML(t *testing.T) {
	for accept, want := range map[string]bool{
		"":                                  false,
		"*/*":                               false,
		"application/json":                  false,
		"application/json, text/html;q=0.9": false,
		"application/json, text/plain, */*": false,
		browser:                             true,
		"text/html":                         true,
		"text/html, application/json;q=0.9": true,
		"application/openmetrics-text, */*": false,
		"text/*":                            true,
		"application/yaml":                  false,
	} {
		if got := wantsHTML(&http.Request{Header: http.Header{"Accept": {accept}}}); got != want {
			t.Errorf("%q: got %v", accept, got)
		}
	}
}
