package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

func checksOf(checks ...Check) Sources {
	return Sources{Checks: func() []Check { return checks }}
}

func passing(context.Context) error { return nil }

func failing(context.Context) error { return errors.New("secret reason") }

func TestHealth(t *testing.T) {
	good := checksOf(Check{Name: "leaderElection", Live: true, Ready: true, Check: passing}, Check{Name: "job-controller", Check: passing})
	bad := checksOf(
		Check{Name: "leaderElection", Live: true, Check: passing},
		Check{Name: "informer-sync", Ready: true, Check: failing},
		Check{Name: "job-controller", Check: failing},
	)
	tests := []struct {
		name, target string
		sources      Sources
		code         int
		body         string
	}{
		{"passes", "/healthz", good, 200, "ok"},
		{"passes verbosely", "/healthz?verbose", good, 200, "[+]leaderElection ok\n[+]job-controller ok\nhealthz check passed\n"},
		{"any value is verbose", "/healthz?verbose=0", good, 200, "[+]leaderElection ok\n[+]job-controller ok\nhealthz check passed\n"},
		{"no checks", "/healthz?verbose", Sources{}, 200, "[+]ping ok\nhealthz check passed\n"},
		{
			"excluded", "/healthz?verbose&exclude=job-controller", good, 200,
			"[+]leaderElection ok\n[+]job-controller excluded: ok\nhealthz check passed\n",
		},
		{
			"unknown excludes are named, sorted", "/healthz?verbose&exclude=y&exclude=x", good, 200,
			"[+]leaderElection ok\n[+]job-controller ok\n" +
				"warn: some health checks cannot be excluded: no matches for \"x\",\"y\"\nhealthz check passed\n",
		},
		{"unknown exclude alone does not fail", "/healthz?exclude=x", good, 200, "ok"},
		{
			"failure is verbose without reasons", "/healthz", bad, 500,
			"[+]leaderElection ok\n[-]informer-sync failed: reason withheld\n[-]job-controller failed: reason withheld\nhealthz check failed\n",
		},
		{
			"what fails can be excluded", "/healthz?exclude=informer-sync&exclude=job-controller", bad, 200, "ok",
		},
		{"a controller does not end the process", "/livez", bad, 200, "ok"},
		{"livez has its own checks", "/livez?verbose", bad, 200, "[+]leaderElection ok\nlivez check passed\n"},
		{"readyz has its own checks", "/readyz", bad, 500, "[-]informer-sync failed: reason withheld\nreadyz check failed\n"},
		{"one check", "/healthz/leaderElection", bad, 200, "ok"},
		{"one check that fails", "/healthz/job-controller", bad, 500, "internal server error: reason withheld\n"},
		{"check that is not there", "/healthz/nothing", bad, 404, "404 page not found\n"},
		{"check of another path", "/livez/job-controller", bad, 404, "404 page not found\n"},
		{"ping stands in", "/livez/ping", Sources{}, 200, "ok"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			answer := ask(handler(t, test.sources), http.MethodGet, test.target)
			if answer.Code != test.code || answer.Body.String() != test.body {
				t.Errorf("got %d %q, want %d %q", answer.Code, answer.Body, test.code, test.body)
			}
			if got := answer.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
				t.Errorf("Content-Type is %q", got)
			}
			if got := answer.Header().Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options is %q", got)
			}
		})
	}
}

func TestHealth_ReasonIsLogged(t *testing.T) {
	var log bytes.Buffer
	s, err := New(Options{
		Sources: checksOf(Check{Name: "job-controller", Check: failing}),
		Logger:  slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: verbosity(2)})),
		Config:  schema.Server{},
	})
	if err != nil {
		t.Fatal(err)
	}
	ask(s.Handler(), http.MethodGet, "/healthz")
	mustContain(t, log.String(), "check=job-controller", "secret reason")
}

func TestHealth_PanickingCheckFailsAlone(t *testing.T) {
	h := handler(t, checksOf(
		Check{Name: "bad", Check: func(context.Context) error { panic("boom") }},
		Check{Name: "good", Live: true, Check: passing},
	))
	if answer := ask(h, http.MethodGet, "/healthz?verbose"); answer.Code != 500 ||
		answer.Body.String() != "[-]bad failed: reason withheld\n[+]good ok\nhealthz check failed\n" {
		t.Errorf("healthz: %d %q", answer.Code, answer.Body)
	}
	if answer := ask(h, http.MethodGet, "/livez"); answer.Code != 200 {
		t.Errorf("livez: %d %q", answer.Code, answer.Body)
	}
}

func TestSLIs(t *testing.T) {
	h := handler(t, checksOf(
		Check{Name: "leaderElection", Live: true, Check: passing},
		Check{Name: "job-controller", Check: failing},
	))
	if body := ask(h, http.MethodGet, "/metrics/slis").Body.String(); body != "" {
		t.Errorf("metrics before the first check:\n%s", body)
	}
	ask(h, http.MethodGet, "/healthz")
	ask(h, http.MethodGet, "/livez")
	mustContain(t, ask(h, http.MethodGet, "/metrics/slis").Body.String(),
		`kubernetes_healthcheck{name="job-controller",type="healthz"} 0`,
		`kubernetes_healthcheck{name="leaderElection",type="healthz"} 1`,
		`kubernetes_healthcheck{name="leaderElection",type="livez"} 1`,
		`kubernetes_healthchecks_total{name="job-controller",status="error",type="healthz"} 1`,
	)
	if answer := ask(h, http.MethodDelete, "/metrics/slis"); answer.Body.String() != "metrics reset\n" {
		t.Errorf("reset: %d %q", answer.Code, answer.Body)
	}
	if body := ask(h, http.MethodGet, "/metrics/slis").Body.String(); body != "" {
		t.Errorf("metrics after the reset:\n%s", body)
	}
}
