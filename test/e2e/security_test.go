package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

// guarded are requests that only an authorized caller may make.
var guarded = []struct{ method, path string }{
	{http.MethodGet, "/"},
	{http.MethodGet, "/configz"},
	{http.MethodGet, "/configz?format=yaml"},
	{http.MethodGet, "/configz/status"},
	{http.MethodGet, "/metrics"},
	{http.MethodGet, "/metrics/slis"},
	{http.MethodDelete, "/metrics/slis"},
	{http.MethodGet, "/debug/controllers"},
	{http.MethodGet, "/debug/controllers/deployment-controller"},
	{http.MethodGet, "/debug/controllers/deployment-controller/graph"},
	{http.MethodGet, "/debug/reloads"},
	{http.MethodGet, "/debug/leader"},
	{http.MethodGet, "/debug/informers"},
	{http.MethodGet, "/debug/flags/v"},
	{http.MethodPut, "/debug/flags/v"},
	{http.MethodGet, "/debug/pprof"},
	{http.MethodGet, "/debug/pprof/"},
	{http.MethodGet, "/debug/pprof/profile?seconds=1"},
	{http.MethodGet, "/debug/pprof/trace?seconds=1"},
	{http.MethodGet, "/debug/pprof/heap"},
	{http.MethodPost, "/debug/pprof/symbol"},
	{http.MethodGet, "/nowhere"},
	{http.MethodPost, "/configz"},
	{http.MethodPost, "/healthz"},
}

// clientFor calls the daemon as the user of a certificate, or as nobody.
func clientFor(t *testing.T, cp *controlplane.ControlPlane, user string, groups ...string) *http.Client {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true} // self-signed
	if user != "" {
		dir := t.TempDir()
		certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		if err := cp.WriteClientCertificate(certificate, key, user, groups...); err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// call returns the answer's code and body.
func call(t *testing.T, client *http.Client, method, url, token string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func TestOnlyHealthIsOpenToEverybody(t *testing.T) {
	cp := controlplane.Shared(t)
	d := start(t, cp, daemon.Options{})
	state(t, d, "deployment-controller", "Running")
	anonymous, stranger := clientFor(t, cp, ""), clientFor(t, cp, "stranger", "strangers")
	eventually(t, soon, "the daemon is ready", func(ctx context.Context) error {
		_, err := d.Body(ctx, "/readyz")
		return err
	})

	for _, path := range []string{"/healthz", "/livez", "/readyz", "/healthz/deployment-controller", "/readyz/informer-sync", "/healthz?verbose"} {
		if code, body := call(t, anonymous, http.MethodGet, d.URL+path, ""); code != http.StatusOK {
			t.Errorf("%s answers %d to everybody, want 200: %s", path, code, body)
		}
	}
	for _, g := range guarded {
		for _, caller := range []struct {
			name   string
			client *http.Client
			token  string
			want   int
		}{
			{"the anonymous", anonymous, "", http.StatusUnauthorized},
			{"a false token", anonymous, "not.a.token", http.StatusUnauthorized},
			{"the unauthorized", stranger, "", http.StatusForbidden},
		} {
			code, body := call(t, caller.client, g.method, d.URL+g.path, caller.token)
			open := g.path == "/healthz" && code == http.StatusMethodNotAllowed // nothing to protect
			if code != caller.want && !open {
				t.Errorf("%s %s answers %d to %s, want %d: %.200s", g.method, g.path, code, caller.name, caller.want, body)
			}
		}
	}
	for _, path := range []string{"/healthz/../configz", "//configz", "/healthz/%2e%2e/configz"} {
		if code, body := call(t, anonymous, http.MethodGet, d.URL+path, ""); code != http.StatusBadRequest {
			t.Errorf("%s answers %d, want 400: %s", path, code, body)
		}
	}
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}} // on purpose
		connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(d.URL, "https://"))
		if err == nil {
			_ = connection.Close() // the test has failed already
			t.Errorf("%s is accepted", tls.VersionName(version))
		}
	}
}

// What the daemon holds in secret, and what callers and the API server entrust
// to it, is in nothing that it shows or logs, however much it logs.
func TestSecretsAreNeitherShownNorLogged(t *testing.T) {
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	var certFile, keyFile string
	d := start(t, cp, daemon.Options{Dir: t.TempDir(), Config: func(c *schema.ControllerManagerConfiguration) {
		dir := filepath.Dir(c.Cluster.Kubeconfig)
		certFile, keyFile = filepath.Join(dir, "serving.crt"), filepath.Join(dir, "serving.key")
		if err := cp.WriteServingCertificate(certFile, keyFile, "daemon"); err != nil {
			t.Fatal(err)
		}
		c.Server.TLS.CertFile, c.Server.TLS.KeyFile = certFile, keyFile
		c.Logging.Level = 10
		c.Logging.Format = "json"
	}})
	state(t, d, "replicaset-controller", "Running")
	deploy(t, client, namespace, "web", 2)
	hasReplicaSet(t, client, namespace, "web")

	// A caller with a token, a file that is refused, and a key that does not fit.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "caller"}}
	if _, err := client.CoreV1().ServiceAccounts("kube-system").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	caller := token(t, cp, "kube-system", "caller")
	if code, body := call(t, clientFor(t, cp, ""), http.MethodGet, d.URL+"/metrics", caller); code != http.StatusForbidden {
		t.Errorf("a caller with a token but without rights is answered %d: %s", code, body)
	}
	secrets := map[string]string{"the caller's token": caller, "a private key": "PRIVATE KEY"}
	readSecrets(t, d.Config().Cluster.Kubeconfig, keyFile, secrets)
	broken, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(keyFile, broken[:len(broken)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.WriteText([]byte("cluster: {kubeconfig: [" + caller[:40] + "]}\n")); err != nil {
		t.Fatal(err)
	}
	eventually(t, soon, "the file is rejected and the key too", func(ctx context.Context) error {
		var reply struct {
			Rejected *struct{ Digest string } `json:"rejected"`
		}
		if err := d.Get(ctx, "/configz/status", &reply); err != nil {
			return err
		}
		if reply.Rejected == nil {
			return errors.New("nothing was rejected")
		}
		return nil
	})

	shown := map[string]string{}
	for _, path := range []string{
		"/", "/configz", "/configz?format=yaml", "/configz/status", "/metrics", "/debug/controllers",
		"/debug/controllers/replicaset-controller", "/debug/reloads", "/debug/leader", "/debug/informers", "/healthz?verbose",
		"/debug/pprof/cmdline?debug=1", "/debug/pprof/goroutine?debug=2",
	} {
		body, err := d.Body(t.Context(), path)
		if err != nil && !strings.HasPrefix(path, "/debug/pprof/") {
			t.Error(err)
		}
		shown[path] = string(body)
	}
	log, err := os.ReadFile(d.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), `"v":8,"msg":"Response Body"`) {
		t.Error("the log is not as talkative as it should be here")
	}
	shown["the log"] = string(log)
	for where, text := range shown {
		for what, secret := range secrets {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("%s tells %s: …%.300s", where, what, text[max(0, at-200):])
			}
		}
		if at := strings.Index(text, "eyJhbGciOi"); at >= 0 {
			t.Errorf("%s tells a token: …%.300s", where, text[max(0, at-200):])
		}
	}
}

// readSecrets adds parts of the keys in both files that nothing else can contain.
func readSecrets(t *testing.T, kubeconfig, keyFile string, secrets map[string]string) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		secrets["the kubeconfig's key"] = keyLine(t, user.ClientKeyData)
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	secrets["the serving key"] = keyLine(t, key)
}

// keyLine is the second line of a PEM file's content.
func keyLine(t *testing.T, pem []byte) string {
	t.Helper()
	lines := strings.Split(string(pem), "\n")
	if len(lines) < 3 || len(lines[2]) < 16 {
		t.Fatalf("this is no key of several lines: %d lines", len(lines))
	}
	return lines[2][:16]
}

// confined runs a program as an unprivileged user on a root file system that is
// read-only, after handing it the directory $0.
const confined = `set -e
chown -R 65532:65532 "$0"
mount --make-rprivate /
mount -o remount,bind,ro /
unset HOME
exec setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all --pdeathsig KILL "$@"`

func TestItRunsUnprivilegedOnAReadOnlyRoot(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c",
		"mount --make-rprivate / && setpriv --reuid 65532 --regid 65532 --clear-groups true").CombinedOutput(); err != nil {
		t.Skipf("needs root, unshare and setpriv of util-linux: %v: %s", err, out)
	}
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	namespace := cp.Namespace(t)
	dir, err := os.MkdirTemp("", "wheelhouse-unprivileged-") //nolint:usetesting // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	program := filepath.Join(dir, "controller-manager")
	for from, to := range map[string]string{binary: program, cp.PKI.CAFile: filepath.Join(dir, "ca.crt")} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, 0o500); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, cp, daemon.Options{
		Dir:     dir,
		Wrapper: []string{"unshare", "--mount", "sh", "-c", confined, dir},
		Binary:  program,
		Config: func(c *schema.ControllerManagerConfiguration) {
			c.Server.TLS.ClientCAFile = filepath.Join(dir, "ca.crt")
		},
	})
	state(t, d, "replicaset-controller", "Running")
	deploy(t, client, namespace, "web", 2)
	allPods(t, client, namespace, 1, 2)

	status, err := os.ReadFile("/proc/" + strconv.Itoa(d.PID()) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532\n", "CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n", "NoNewPrivs:\t1\n"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the process is not confined: no %q in\n%s", want, status)
		}
	}
	// The daemon must be able to read the new file as soon as it is there.
	fresh := d.File + ".new"
	if err := errors.Join(os.WriteFile(fresh, nil, 0o600), os.Chown(fresh, 65532, 65532)); err != nil {
		t.Fatal(err)
	}
	if err := d.Edit(func(c *schema.ControllerManagerConfiguration) {
		c.Controllers.Sections["deployment-controller"].Base().Enabled = false
	}); err != nil {
		t.Fatal(err)
	}
	state(t, d, "deployment-controller", "Disabled")
}
