package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// whoami answers with who calls, over which connection, and what for.
func whoami(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "" {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	}
	name := ""
	if len(r.TLS.PeerCertificates) > 0 {
		name = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	fmt.Fprintf(w, "%s|%s|%s|%s|%s", name, r.Header.Get("Authorization"), r.URL.Path, r.RemoteAddr, r.Proto)
}

type caller struct{ certificate, authorization, path, connection, proto string }

func ask(t *testing.T, client *kubernetes.Clientset) caller {
	t.Helper()
	body, err := client.CoreV1().RESTClient().Get().AbsPath("/who").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(body), "|")
	return caller{parts[0], parts[1], parts[2], parts[3], parts[4]}
}

func rootClient(t *testing.T, b *Builder) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(b.Root("test"))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func reload(t *testing.T, b *Builder, wantChanged bool) {
	t.Helper()
	changed, err := b.Reload()
	if err != nil {
		t.Fatal(err)
	}
	if changed != wantChanged {
		t.Errorf("changed = %t, want %t", changed, wantChanged)
	}
}

func TestCredentialsFollowTheirFiles(t *testing.T) {
	ca := newAuthority(t)
	server := ca.serve(t, http.HandlerFunc(whoami))
	f := newFiles(t, server.URL)
	f.write("ca.crt", ca.pem)
	f.AuthInfos["u"].ClientCertificate, f.AuthInfos["u"].ClientKey = "client.crt", "client.key"
	f.AuthInfos["u"].TokenFile = "token"
	writePair := func(name string) {
		cert, key := ca.issue(t, name)
		f.write("client.crt", cert)
		f.write("client.key", key)
	}
	writePair("first")
	f.write("token", []byte("token-1\n"))
	b := newBuilder(t, Options{Kubeconfig: f.kubeconfig()})
	client := rootClient(t, b)
	want := []string{f.path("ca.crt"), f.path("client.crt"), f.path("client.key"), f.path("kubeconfig"), f.path("token")}
	if got := b.Files(); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}

	first := ask(t, client)
	if first.certificate != "first" || first.authorization != "Bearer token-1" || first.proto != "HTTP/2.0" {
		t.Fatalf("called as %+v", first)
	}
	reload(t, b, false)
	watch := startWatch(t, client)

	// A new token is carried by the next request, over the same connection.
	f.write("token", []byte("token-2"))
	reload(t, b, true)
	if got := ask(t, client); got.authorization != "Bearer token-2" || got.connection != first.connection {
		t.Errorf("called as %+v, want token-2 over the connection from %s", got, first.connection)
	}
	watch.expectGoingOn(t)

	// Other content of the kubeconfig that means the same changes nothing.
	f.Contexts["other"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	f.kubeconfig()
	reload(t, b, false)

	// A new certificate needs a new connection, and the watches follow.
	writePair("second")
	reload(t, b, true)
	if got := ask(t, client); got.certificate != "second" || got.connection == first.connection {
		t.Errorf("called as %+v, want the second certificate over a new connection", got)
	}
	watch.expectEnd(t)
}

func TestServerMoves(t *testing.T) {
	ca := newAuthority(t)
	old, moved := ca.serve(t, http.HandlerFunc(whoami)), ca.serve(t, http.HandlerFunc(whoami))
	f := newFiles(t, old.URL+"/clusters/a")
	f.write("ca.crt", ca.pem)
	b := newBuilder(t, Options{Kubeconfig: f.kubeconfig()})
	client := rootClient(t, b)
	if got := ask(t, client).path; got != "/clusters/a/who" {
		t.Errorf("asked for %s, want /clusters/a/who", got)
	}
	watch := startWatch(t, client)
	for _, path := range []string{"", "/clusters/b/", "/x"} {
		f.Clusters["c"].Server = moved.URL + path
		f.kubeconfig()
		reload(t, b, true)
		if got, want := ask(t, client).path, strings.TrimSuffix(path, "/")+"/who"; got != want {
			t.Errorf("asked for %s, want %s", got, want)
		}
		if _, err := client.CoreV1().Pods("n").Get(t.Context(), "a%2Fb", metav1.GetOptions{}); err == nil {
			t.Error("no error of a server that knows no pods")
		}
	}
	watch.expectEnd(t)
	old.Close()
	ask(t, client)
}

func TestAuthorityChanges(t *testing.T) {
	first, second := newAuthority(t), newAuthority(t)
	old, renewed := first.serve(t, http.HandlerFunc(whoami)), second.serve(t, http.HandlerFunc(whoami))
	f := newFiles(t, old.URL)
	f.write("ca.crt", first.pem)
	b := newBuilder(t, Options{Kubeconfig: f.kubeconfig()})
	client := rootClient(t, b)
	ask(t, client)
	ca, changed := b.ServerCA()
	if !bytes.Equal(ca, first.pem) {
		t.Errorf("the API server's CA is %q, want %q", ca, first.pem)
	}
	f.Clusters["c"].Server = renewed.URL
	f.kubeconfig()
	reload(t, b, true)
	if _, err := client.CoreV1().RESTClient().Get().AbsPath("/who").DoRaw(t.Context()); err == nil {
		t.Error("a server of another authority is trusted")
	}
	select {
	case <-changed:
		t.Error("the API server's CA is said to have changed")
	default:
	}
	f.write("ca.crt", second.pem)
	reload(t, b, true)
	ask(t, client)
	select {
	case <-changed:
	default:
		t.Error("nobody is told of the API server's new CA")
	}
	if ca, _ := b.ServerCA(); !bytes.Equal(ca, second.pem) {
		t.Errorf("the API server's CA is %q, want %q", ca, second.pem)
	}
}

func TestBadCredentialsAreRefusedAndTheOldOnesKept(t *testing.T) {
	const secret = "s3cr3t"
	ca := newAuthority(t)
	server := ca.serve(t, http.HandlerFunc(whoami))
	cert, key := ca.issue(t, "client")
	_, otherKey := ca.issue(t, "other")
	good := func() *files {
		f := newFiles(t, server.URL)
		f.write("ca.crt", ca.pem)
		f.write("client.crt", cert)
		f.write("client.key", key)
		f.write("token", []byte(secret))
		*f.AuthInfos["u"] = clientcmdapi.AuthInfo{ClientCertificate: "client.crt", ClientKey: "client.key", TokenFile: "token"}
		return f
	}
	tests := []struct {
		name string
		make func(f *files) // writes what is wrong
		// want are parts of the error; $ is the directory.
		want []string
	}{
		{"no kubeconfig", func(f *files) { f.remove("kubeconfig") }, []string{"$/kubeconfig", "no such file"}},
		{"empty kubeconfig", func(f *files) { f.write("kubeconfig", nil) }, []string{"$/kubeconfig", "no configuration"}},
		{"half a kubeconfig", func(f *files) {
			f.write("kubeconfig", []byte("apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user: {token: "+secret))
		},
			[]string{"$/kubeconfig"}},
		{"wrong type", func(f *files) {
			f.write("kubeconfig", []byte("apiVersion: v1\nkind: Config\nusers:\n- name: u\n  user: {token: ["+secret+"]}"))
		}, []string{"$/kubeconfig"}},
		{"tokens that are numbers", func(f *files) {
			f.write("kubeconfig", []byte("apiVersion: v1\nkind: Config\n"+
				"users:\n- {name: u, user: {token: 5, extra: "+secret+"}}\nclusters: "+secret))
		}, []string{"$/kubeconfig"}},
		{"no context", func(f *files) { f.CurrentContext = "y"; f.kubeconfig() }, []string{"$/kubeconfig", "y", "current-context"}},
		{"no server", func(f *files) { f.Clusters["c"].Server = ""; f.kubeconfig() }, []string{"$/kubeconfig", "server"}},
		{"no authority", func(f *files) { f.remove("ca.crt") }, []string{"$/ca.crt"}},
		{"empty authority", func(f *files) { f.write("ca.crt", nil) }, []string{"$/ca.crt", "PEM"}},
		{"broken authority", func(f *files) { f.write("ca.crt", []byte("hello")) }, []string{"$/ca.crt", "PEM"}},
		{"no certificate", func(f *files) { f.remove("client.crt") }, []string{"$/client.crt"}},
		{"no key", func(f *files) { f.remove("client.key") }, []string{"$/client.key"}},
		{"broken key", func(f *files) { f.write("client.key", []byte(secret)) }, []string{"$/client.crt", "$/client.key", "pair"}},
		{"another key", func(f *files) { f.write("client.key", otherKey) }, []string{"$/client.crt", "$/client.key", "does not match"}},
		{"no token", func(f *files) { f.remove("token") }, []string{"$/token"}},
		{"empty token", func(f *files) { f.write("token", nil) }, []string{"$/token", "empty"}},
		{"user name and token", func(f *files) {
			*f.AuthInfos["u"] = clientcmdapi.AuthInfo{Token: secret, Username: "u", Password: secret}
			f.kubeconfig()
		}, []string{"$/kubeconfig", "only one is allowed"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := good()
			b := newBuilder(t, Options{Kubeconfig: f.kubeconfig()})
			client := rootClient(t, b)
			before := ask(t, client)
			wanted := b.Files()
			test.make(f)
			changed, err := b.Reload()
			if err == nil || changed {
				t.Fatalf("changed = %t, error %v; want it refused", changed, err)
			}
			for _, part := range test.want {
				if part = strings.ReplaceAll(part, "$", f.dir); !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not say %q", err, part)
				}
			}
			for _, hidden := range []string{secret, string(key), string(cert)} {
				if strings.Contains(err.Error(), hidden) {
					t.Errorf("error %q gives away a secret", err)
				}
			}
			if got := ask(t, client); got != before {
				t.Errorf("called as %+v, want as before: %+v", got, before)
			}
			for _, file := range wanted {
				if !slices.Contains(b.Files(), file) {
					t.Errorf("%s is not watched any more", file)
				}
			}
			if _, err := New(b.o); err == nil {
				t.Error("a new process would start with it")
			}
		})
	}
}

func (f *files) remove(name string) {
	f.t.Helper()
	if err := os.Remove(f.path(name)); err != nil {
		f.t.Fatal(err)
	}
}

func TestMissingFileIsWatchedFor(t *testing.T) {
	ca := newAuthority(t)
	server := ca.serve(t, http.HandlerFunc(whoami))
	f := newFiles(t, server.URL)
	f.write("ca.crt", ca.pem)
	b := newBuilder(t, Options{Kubeconfig: f.kubeconfig()})
	f.AuthInfos["u"].TokenFile = "new/token"
	f.kubeconfig()
	if _, err := b.Reload(); err == nil {
		t.Fatal("no error")
	}
	if got := b.Files(); !slices.Contains(got, f.path("new/token")) {
		t.Errorf("files %q, want the missing one among them", got)
	}
	if err := os.Mkdir(f.path("new"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.write("new/token", []byte("t"))
	reload(t, b, true)
	if got := ask(t, rootClient(t, b)).authorization; got != "Bearer t" {
		t.Errorf("called with %q", got)
	}
}

func TestNotInAPod(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, files, err := loadCredentials("")
	if err == nil || !strings.Contains(err.Error(), "cluster.kubeconfig") {
		t.Errorf("error %v, want one that says what to set", err)
	}
	if !slices.Equal(files, []string{podCAFile, podTokenFile}) {
		t.Errorf("files %q", files)
	}
}

func TestExecPluginGivesCredentials(t *testing.T) {
	ca := newAuthority(t)
	server := ca.serve(t, http.HandlerFunc(whoami))
	f := newFiles(t, server.URL)
	f.write("ca.crt", ca.pem)
	script := f.path("plugin")
	f.write("plugin", []byte(`#!/bin/sh
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"from-plugin-'$1'"}}'
`))
	if err := os.Chmod(script, 0o700); err != nil {
		t.Fatal(err)
	}
	exec := &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: script, Args: []string{"1"},
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	f.AuthInfos["u"].Exec = exec
	b := newBuilder(t, Options{Kubeconfig: f.kubeconfig()})
	client := rootClient(t, b)
	if got := ask(t, client).authorization; got != "Bearer from-plugin-1" {
		t.Errorf("called with %q", got)
	}
	reload(t, b, false)
	exec.Args = []string{"2"}
	f.kubeconfig()
	reload(t, b, true)
	if got := ask(t, client).authorization; got != "Bearer from-plugin-2" {
		t.Errorf("called with %q", got)
	}
}

func TestReloadUnderLoad(t *testing.T) {
	ca := newAuthority(t)
	server := ca.serve(t, http.HandlerFunc(whoami))
	f := newFiles(t, server.URL)
	f.write("ca.crt", ca.pem)
	f.AuthInfos["u"].ClientCertificate, f.AuthInfos["u"].ClientKey = "client.crt", "client.key"
	pairs := [2][2][]byte{}
	for i, name := range []string{"even", "odd"} {
		pairs[i][0], pairs[i][1] = ca.issue(t, name)
	}
	write := func(i int) {
		f.write("client.crt", pairs[i%2][0])
		f.write("client.key", pairs[i%2][1])
	}
	write(0)
	b := newBuilder(t, Options{Kubeconfig: f.kubeconfig()})
	client := rootClient(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var requests atomic.Int64
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				_, err := client.CoreV1().RESTClient().Post().AbsPath("/who").Body([]byte("{}")).DoRaw(context.WithoutCancel(ctx))
				if err != nil {
					t.Errorf("a request failed during a reload: %v", err)
					return
				}
				requests.Add(1)
			}
		})
	}
	for i := range 50 {
		write(i + 1)
		reload(t, b, true)
	}
	cancel()
	all.Wait()
	if requests.Load() == 0 {
		t.Error("no request was sent")
	}
}

// watchRun is a watch that a test looks after.
type watchRun struct {
	err chan error
}

func startWatch(t *testing.T, client *kubernetes.Clientset) *watchRun {
	t.Helper()
	body, err := client.CoreV1().RESTClient().Get().AbsPath("/pods").Param("watch", "true").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w := &watchRun{err: make(chan error, 1)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err := io.ReadAll(body)
		w.err <- errors.Join(err, body.Close())
	}()
	t.Cleanup(func() { <-done })
	return w
}

func (w *watchRun) expectGoingOn(t *testing.T) {
	t.Helper()
	select {
	case err := <-w.err:
		t.Errorf("the watch ended: %v", err)
	default:
	}
}

func (w *watchRun) expectEnd(t *testing.T) {
	t.Helper()
	select {
	case err := <-w.err:
		if err != nil {
			t.Errorf("the watch ended with an error: %v", err)
		}
	case <-time.After(soon):
		t.Error("the watch goes on over the old connection")
	}
}

func TestRelativePathsAreMadeAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	_, files, err := loadCredentials("kubeconfig")
	if err == nil {
		t.Fatal("no error")
	}
	if len(files) != 1 || !filepath.IsAbs(files[0]) {
		t.Errorf("files %q, want one absolute path", files)
	}
}
