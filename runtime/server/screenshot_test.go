//go:build screenshot

package server

import (
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wheelhouse-project/wheelhouse/runtime/election"
)

// TestScreenshot takes the pictures of the status page for the documentation,
// of sample data or of a daemon that runs:
//
//	go test -tags screenshot -run TestScreenshot ./runtime/server
//	DAEMON=https://127.0.0.1:10257 KUBECONFIG=$PWD/.run/admin.kubeconfig go test -tags screenshot …
//
// PAGE is the page (default: /), SIZE the window's (default: 1200,1200), and
// SCREENSHOTS the folder to write to (default: docs/images).
func TestScreenshot(t *testing.T) {
	web := httptest.NewUnstartedServer(nil)
	if daemon := os.Getenv("DAEMON"); daemon != "" {
		web.Config.Handler = proxyTo(t, daemon, os.Getenv("KUBECONFIG"))
	} else {
		s, err := New(Options{Sources: sample(), Version: "v0.1.0", Started: time.Now().Add(-3 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		web.Config.Handler = s.Handler()
	}
	web.Start()
	defer web.Close()
	folder, err := filepath.Abs(setting("SCREENSHOTS", "../../docs/images"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, look := range []struct{ name, scheme string }{{"status", "1"}, {"status-dark", "0"}} {
		to := filepath.Join(folder, look.name+".png")
		chromium(t, "--hide-scrollbars", "--window-size="+setting("SIZE", "1200,1200"),
			"--blink-settings=preferredColorScheme="+look.scheme, "--screenshot="+to, web.URL+setting("PAGE", "/"))
		t.Log("wrote", to)
	}
}

// TestPagesAreLive opens the status page in a browser: under its own policy it
// asks for newer content and shows it.
func TestPagesAreLive(t *testing.T) {
	sources := sample()
	var asked atomic.Int64
	sources.Election = func() election.Status {
		return election.Status{Leader: true, Identity: fmt.Sprintf("answer-%d", asked.Add(1))}
	}
	s, err := New(Options{Sources: sources})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s.Handler())
	defer web.Close()
	page := chromium(t, "--virtual-time-budget=7000", "--dump-dom", web.URL+"/")
	if asked.Load() < 2 || strings.Contains(page, ">answer-1<") {
		t.Errorf("asked %d times, shows:\n%s", asked.Load(), page)
	}
	mustContain(t, page, `<span id="live-text" role="status">Live</span>`)
}

// chromium returns what the browser prints.
func chromium(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "chromium", append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--user-data-dir=" + t.TempDir(),
	}, args...)...)
	var problems strings.Builder
	command.Stderr = &problems
	out, err := command.Output()
	if err != nil {
		t.Fatalf("chromium: %v\n%s", err, problems.String())
	}
	return string(out)
}

// proxyTo stands between the browser, which has no certificate, and a daemon
// whose administrator kubeconfig names.
func proxyTo(t *testing.T, daemon, kubeconfig string) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(daemon)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	// The daemon's certificate may be self-signed, and it is on this machine.
	config.TLSClientConfig.Insecure, config.TLSClientConfig.CAData, config.TLSClientConfig.CAFile = true, nil, ""
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
