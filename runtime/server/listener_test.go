package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/goroutines"
)

func TestRun_LeavesNothingBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s := run(t, Options{Config: schema.Server{Authorization: everything}})
	client := newClient(t)
	for range 20 {
		if code, _ := fetch(t, client, s.url("/healthz")); code != http.StatusOK {
			t.Fatalf("got %d", code)
		}
	}
	// A connection that says nothing must not hold the server up.
	start := time.Now()
	silent, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	addr := s.Addr().String()
	s.stop(t)
	if took := time.Since(start); took > headerTimeout {
		t.Errorf("ended %v after a connection that said nothing", took)
	}
	if _, err := net.Dial("tcp", addr); !isRefused(err) {
		t.Errorf("still listening: %v", err)
	}
	client.CloseIdleConnections()
	if err := goroutines.Left(before); err != nil {
		t.Error(err)
	}
}

// Requests that do not end are cut off at the end of Run, and it does not wait
// for one that ignores it for long.
func TestRun_EndsDespiteRequests(t *testing.T) {
	entered := make(chan struct{}, 2)
	release := make(chan struct{})
	ended := make(chan error, 1)
	sources := sample()
	sources.ControllerHandler = func(name string) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			entered <- struct{}{}
			if name == "deployment-controller" {
				<-r.Context().Done()
				ended <- r.Context().Err()
				return
			}
			<-release
		})
	}
	defer close(release)
	s := run(t, Options{Sources: sources, Config: schema.Server{Authorization: everything}})
	client := newClient(t)
	for _, name := range []string{"deployment-controller", "replicaset-controller"} {
		go func() { _, _, _ = tryFetch(t, client, s.url("/debug/controllers/"+name+"/")) }()
	}
	<-entered
	<-entered
	s.stop(t)
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the context of a request has no error")
		}
	case <-time.After(soon):
		t.Error("the context of a request goes on")
	}
}

// Requests go on while the server moves from address to address, also between
// the wildcard and one address on the same port.
func TestApply_MovesWithoutFailedRequests(t *testing.T) {
	one, other := freePort(t), freePort(t)
	tests := []struct {
		name     string
		from, to address
		// connections tells whether clients also open one for each request. A
		// specific address takes precedence over the wildcard until it is closed,
		// so that no order is free of a moment for those.
		connections bool
	}{
		{"to another port", address{"127.0.0.1", one}, address{"127.0.0.1", other}, true},
		{"to another port and the wildcard", address{"127.0.0.1", one}, address{"0.0.0.0", other}, true},
		{"from the wildcard to one address", address{"0.0.0.0", one}, address{"127.0.0.1", one}, true},
		{"from all families to one address", address{"::", one}, address{"127.0.0.1", one}, true},
		{"from one address to the wildcard", address{"127.0.0.1", one}, address{"0.0.0.0", one}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { moveUnderLoad(t, test.from, test.to, test.connections) })
	}
}

func moveUnderLoad(t *testing.T, from, to address, connections bool) {
	sources := sample()
	sources.ControllerHandler = func(string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(10 * time.Millisecond):
				fmt.Fprint(w, "done")
			case <-r.Context().Done():
			}
		})
	}
	s := run(t, Options{Sources: sources, Config: schema.Server{Authorization: everything}})
	cfg := s.config
	cfg.BindAddress, cfg.Port = from.host, from.port
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}

	// Clients dial the port that they were last told of; they are told as soon
	// as the new one is served. Connections that are open are left alone.
	var known sync.RWMutex
	port := from.port
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		known.RLock()
		defer known.RUnlock()
		return new(net.Dialer).DialContext(ctx, "tcp", address{"127.0.0.1", port}.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var sent atomic.Int64
	for i := range 9 {
		client := newClient(t)
		transport := client.Transport.(*http.Transport)
		transport.DialContext = dial
		transport.ForceAttemptHTTP2 = i%3 == 0
		transport.DisableKeepAlives = i%3 == 2
		if transport.DisableKeepAlives && !connections {
			continue
		}
		load.Go(func() {
			for ctx.Err() == nil {
				code, body, err := tryFetch(t, client, "https://wheelhouse/debug/controllers/deployment-controller/")
				if err != nil || code != http.StatusOK || body != "done" {
					t.Errorf("after %d requests: %d %q %v", sent.Load(), code, body, err)
					return
				}
				sent.Add(1)
			}
		})
	}
	more := func() {
		was := sent.Load()
		eventually(t, "requests go on", func() error {
			if sent.Load() < was+100 {
				return errors.New("too few requests")
			}
			return nil
		})
	}
	more()
	cfg.BindAddress, cfg.Port = to.host, to.port
	known.Lock()
	err := s.Apply(cfg)
	port = to.port
	known.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	listens := s.Addr().(*net.TCPAddr)
	if wildcard := net.ParseIP(to.host).IsUnspecified(); listens.Port != to.port || listens.IP.IsUnspecified() != wildcard {
		t.Errorf("listens on %s, want %s", listens, to)
	}
	if from.port != to.port {
		eventually(t, "the old address is closed", func() error {
			conn, err := net.Dial("tcp", address{"127.0.0.1", from.port}.String())
			if err == nil {
				return errors.Join(errors.New("still open"), conn.Close())
			}
			if !isRefused(err) {
				return err
			}
			return nil
		})
	}
	more()
	cancel()
	load.Wait()
}

func TestApply_AddressThatCannotBeHad(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := run(t, Options{Config: schema.Server{Authorization: everything}})
	client := newClient(t)
	was := s.Addr().String()
	for _, test := range []struct {
		host string
		port int
		want []string
	}{
		{"127.0.0.1", taken.Addr().(*net.TCPAddr).Port, []string{taken.Addr().String(), "address already in use", "stop the process that uses it"}},
		{"0.0.0.0", taken.Addr().(*net.TCPAddr).Port, []string{"address already in use", "stop the process that uses it"}},
		{"192.0.2.1", s.config.Port, []string{"192.0.2.1", "cannot assign requested address", "choose an address of this host"}},
	} {
		cfg := s.config
		cfg.BindAddress, cfg.Port = test.host, test.port
		err := s.Apply(cfg)
		if err == nil {
			t.Fatalf("%s:%d: no error", test.host, test.port)
		}
		mustContain(t, err.Error(), append(test.want, "server.bindAddress, server.port")...)
		if got := s.Addr().String(); got != was {
			t.Errorf("listens on %s, want %s", got, was)
		}
		if code, _ := fetch(t, client, s.url("/healthz")); code != http.StatusOK {
			t.Errorf("got %d", code)
		}
	}
	// The rest of an edit is applied all the same, and a later one succeeds.
	cfg := s.config
	cfg.Port, cfg.Profiling = taken.Addr().(*net.TCPAddr).Port, true
	if err := s.Apply(cfg); err == nil {
		t.Error("no error")
	}
	if code, _ := fetch(t, client, s.url("/debug/pprof/")); code != http.StatusOK {
		t.Errorf("profiling is not applied: %d", code)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(cfg); err != nil {
		t.Errorf("after the port is free: %v", err)
	}
	if code, _ := fetch(t, client, s.url("/healthz")); code != http.StatusOK {
		t.Errorf("got %d", code)
	}
}

// Nobody else finds the port free, also not after the server shared it with itself.
func TestApply_PortIsNotSharedWithOthers(t *testing.T) {
	s := run(t, Options{Config: schema.Server{Authorization: everything}})
	cfg := s.config
	for _, host := range []string{"0.0.0.0", "127.0.0.1", "0.0.0.0"} {
		cfg.BindAddress = host
		if err := s.Apply(cfg); err != nil {
			t.Fatal(err)
		}
	}
	for _, host := range []string{"0.0.0.0", "127.0.0.1"} {
		if l, err := net.Listen("tcp", address{host, cfg.Port}.String()); err == nil {
			t.Errorf("another listener got %s", l.Addr())
			l.Close()
		}
	}
}

func TestApply_PortZeroTurnsTheServerOff(t *testing.T) {
	s := run(t, Options{Config: schema.Server{Authorization: everything}})
	was := s.Addr().String()
	cfg := s.config
	cfg.Port = 0
	if err := s.Apply(cfg); err != nil {
		t.Fatal(err)
	}
	if s.Addr() != nil || s.Status().Addr != "" {
		t.Errorf("still says %v", s.Addr())
	}
	eventually(t, "the port is closed", func() error {
		conn, err := net.Dial("tcp", was)
		if err == nil {
			return errors.Join(errors.New("still open"), conn.Close())
		}
		return nil
	})
	if err := s.Apply(s.config); err != nil {
		t.Fatal(err)
	}
	if code, _ := fetch(t, newClient(t), s.url("/healthz")); code != http.StatusOK {
		t.Errorf("got %d", code)
	}
}

func TestRun_FirstAddressCannotBeHad(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s, err := New(Options{Logger: discard, Config: schema.Server{BindAddress: "127.0.0.1", Port: taken.Addr().(*net.TCPAddr).Port}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "choose another port") {
		t.Errorf("got %v", err)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	s := run(t, Options{Sources: sample(), Config: schema.Server{Authorization: everything}})
	dial := func(t *testing.T) *tls.Conn {
		t.Helper()
		conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	// cutOff reads until the server ends the connection.
	cutOff := func(t *testing.T, conn net.Conn) string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(soon)); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatalf("not cut off within %v: %q", soon, answer)
		}
		return string(answer)
	}

	t.Run("header too large", func(t *testing.T) {
		t.Parallel()
		conn := dial(t)
		fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Large: %s\r\n\r\n", strings.Repeat("x", maxHeaderBytes+8192))
		mustContain(t, cutOff(t, conn), "431 Request Header Fields Too Large")
	})
	t.Run("header too large over HTTP/2", func(t *testing.T) {
		t.Parallel()
		code, _, err := tryFetch(t, newClient(t), s.url("/livez"), "X-Large", strings.Repeat("x", 4*maxHeaderBytes))
		if err == nil && code != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("got %d", code)
		}
	})
	t.Run("body too large", func(t *testing.T) {
		t.Parallel()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.url("/debug/flags/v"), strings.NewReader(strings.Repeat("1", 1<<20)))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := newClient(t).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("got %d", answer.StatusCode)
		}
	})
	t.Run("header that never ends", func(t *testing.T) {
		t.Parallel()
		conn := dial(t)
		fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ")
		cutOff(t, conn)
	})
	t.Run("handshake that never ends", func(t *testing.T) {
		t.Parallel()
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		cutOff(t, conn)
	})
	t.Run("body that never comes", func(t *testing.T) {
		t.Parallel()
		conn := dial(t)
		fmt.Fprint(conn, "PUT /debug/flags/v HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n4")
		mustContain(t, cutOff(t, conn), "400 Bad Request")
	})
	t.Run("body that nobody reads and never comes", func(t *testing.T) {
		t.Parallel()
		conn := dial(t)
		fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
		cutOff(t, conn)
	})
	t.Run("others are served meanwhile, and deadlines do not outlive their request", func(t *testing.T) {
		t.Parallel()
		conn := dial(t)
		reader := bufio.NewReader(conn)
		ask := func(request string) int {
			fmt.Fprint(conn, request)
			answer, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, answer.Body); err != nil {
				t.Fatal(err)
			}
			return answer.StatusCode
		}
		if code := ask("PUT /debug/flags/v HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n4"); code != http.StatusOK {
			t.Errorf("got %d", code)
		}
		// Longer than the first request had for its body.
		time.Sleep(bodyTimeout + time.Second)
		if code := ask("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); code != http.StatusOK {
			t.Errorf("got %d", code)
		}
	})
}

// Half an answer must not look like a whole one.
func TestPanic_AfterTheAnswerBeganCutsTheConnection(t *testing.T) {
	sources := sample()
	sources.ControllerHandler = func(string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, "half")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			panic("boom")
		})
	}
	s := run(t, Options{Sources: sources, Config: schema.Server{Authorization: everything}})
	client := newClient(t)
	if _, body, err := tryFetch(t, client, s.url("/debug/controllers/deployment-controller/")); err == nil {
		t.Errorf("got %q without an error", body)
	}
	if code, _ := fetch(t, client, s.url("/livez")); code != http.StatusOK {
		t.Errorf("got %d", code)
	}
}
