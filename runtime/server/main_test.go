package server

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, controlplane.Options{})) }

var discard = slog.New(slog.DiscardHandler)

// soon is ample for what must come on a busy machine.
const soon = 2 * time.Minute

// everything is open to everybody, in tests of other things than the gate.
var everything = schema.Authorization{AlwaysAllowPaths: []string{"*"}}

// handler serves sources without a listener and without a gate.
func handler(t *testing.T, sources Sources) http.Handler {
	t.Helper()
	s, err := New(Options{Sources: sources, Logger: discard, Config: schema.Server{Profiling: true}})
	if err != nil {
		t.Fatal(err)
	}
	return s.Handler()
}

// ask asks h and returns its answer.
func ask(h http.Handler, method, target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// running is a server that listens.
type running struct {
	*Server
	config schema.Server
	ended  chan error
	cancel context.CancelFunc
}

// run starts a server on a free port of 127.0.0.1, or of the address in
// o.Config, and stops it at the end of the test.
func run(t *testing.T, o Options) *running {
	t.Helper()
	if o.Logger == nil {
		o.Logger = discard
	}
	if o.Config.BindAddress == "" {
		o.Config.BindAddress = "127.0.0.1"
	}
	o.Config.Port = freePort(t)
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Server: s, config: o.Config, ended: make(chan error, 1), cancel: cancel}
	go func() { r.ended <- s.Run(ctx) }()
	t.Cleanup(func() { r.stop(t) })
	eventually(t, "the server listens", func() error {
		select {
		case err := <-r.ended:
			t.Fatalf("server ended: %v", err)
		default:
		}
		if s.Addr() == nil {
			return errors.New("no address")
		}
		return nil
	})
	return r
}

// stop ends the server, once.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	select {
	case err, open := <-r.ended:
		if open && err != nil {
			t.Errorf("server: %v", err)
		}
		if open {
			close(r.ended)
		}
	case <-time.After(soon):
		t.Error("the server does not end")
	}
}

func (r *running) url(path string) string { return "https://" + r.Addr().String() + path }

// newClient trusts every server, and has connections of its own.
func newClient(t *testing.T, change ...func(*tls.Config)) *http.Client {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	for _, c := range change {
		c(config)
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 60 * time.Second}
}

// fetch returns the code and the body of a GET.
func fetch(t *testing.T, c *http.Client, url string, header ...string) (int, string) {
	t.Helper()
	code, body, err := tryFetch(t, c, url, header...)
	if err != nil {
		t.Fatal(err)
	}
	return code, body
}

func tryFetch(t *testing.T, c *http.Client, url string, header ...string) (int, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(body), err
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// freePort returns a port of 127.0.0.1 that the kernel has just found free.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mustContain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is not in:\n%s", part, text)
		}
	}
}

func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
