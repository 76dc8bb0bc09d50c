package config

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var scheme = sync.OnceValue(func() *schema.Scheme { return schema.NewScheme() })

const head = "apiVersion: config.wheelhouse.dev/v1alpha1\nkind: ControllerManagerConfiguration\n"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// file writes a configuration file of its own.
func file(t testing.TB, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	must(t, os.WriteFile(path, []byte(head+body), 0o600))
	return path
}

func workers(c *schema.ControllerManagerConfiguration, name string) int {
	return c.Controllers.Sections[name].Base().Workers
}

func TestLayersAreMergedTheLastOneWins(t *testing.T) {
	path := file(t, `
server: {port: 1001, bindAddress: 127.0.0.1, tls: {cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]}}
logging: {level: 1, modules: {config: 2, client-go: 3}}
controllers:
  deployment: {workers: 11}
`)
	snapshot, errs := Load(Options{
		Scheme: scheme(), Path: path,
		Environ: []string{
			"PATH=/bin",
			"WHEELHOUSE_SERVER_PORT=1002",
			"WHEELHOUSE_LOGGING_MODULES_CLIENT_GO=4",
			"WHEELHOUSE_SERVER_TLS_CIPHER_SUITES=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
			"WHEELHOUSE_CONTROLLERS_DEPLOYMENT_CONTROLLER_WORKERS=12",
		},
		Set: []string{"controllers.deployment-controller.workers=13", "logging.level=4", "logging.level=5"},
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	c := snapshot.Config
	for _, check := range []struct {
		path      string
		got, want any
		origin    string
	}{
		{"leaderElection.resourceName", c.LeaderElection.ResourceName, "kube-controller-manager", "default"},
		{"server.bindAddress", c.Server.BindAddress, "127.0.0.1", path + ":4:35"},
		{"server.port", c.Server.Port, 1002, "WHEELHOUSE_SERVER_PORT"},
		{"server.tls.cipherSuites", len(c.Server.TLS.CipherSuites), 1, "WHEELHOUSE_SERVER_TLS_CIPHER_SUITES"},
		{"logging.level", c.Logging.Level, 5, "--set logging.level"},
		{"logging.modules.config", c.Logging.Modules["config"], 2, path + ":5:39"},
		{"logging.modules.client-go", c.Logging.Modules["client-go"], 4, "WHEELHOUSE_LOGGING_MODULES_CLIENT_GO"},
		{
			"controllers.deployment-controller.workers", workers(c, "deployment-controller"), 13,
			"--set controllers.deployment-controller.workers",
		},
		{"controllers.replicaset-controller.workers", workers(c, "replicaset-controller"), 5, "default"},
	} {
		if check.got != check.want {
			t.Errorf("%s is %v, want %v", check.path, check.got, check.want)
		}
		if got := snapshot.Origins[check.path].String(); got != check.origin {
			t.Errorf("%s comes from %s, want %s", check.path, got, check.origin)
		}
	}
	if snapshot.Path != path || len(snapshot.Digest) != 64 || snapshot.Trigger != "start" || snapshot.LoadedAt.IsZero() {
		t.Errorf("snapshot of %s: %+v", path, snapshot)
	}
}

func TestWithoutAFileTheOtherLayersCount(t *testing.T) {
	snapshot, errs := Load(Options{Scheme: scheme(), Set: []string{"server.port=1"}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if snapshot.Config.Server.Port != 1 || snapshot.Digest != "" || snapshot.Path != "" {
		t.Errorf("%+v", snapshot)
	}
}

func TestEveryFaultOfEveryLayerIsReportedAtOnce(t *testing.T) {
	path := file(t, "server: {prot: 1, port: x}\nlogging: {level: -1}\n")
	_, errs := Load(Options{
		Scheme: scheme(), Path: path,
		Environ: []string{"WHEELHOUSE_SERVER_PORTS=1"},
		Set:     []string{"nonsense", "leaderElection.renewDeadline=20s"},
	})
	all := errs.Error()
	for _, want := range []string{
		"server.prot", "server.port", "logging.level", "WHEELHOUSE_SERVER_PORTS", "expected path=value", "leaderElection.renewDeadline",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no word of %s in:\n%s", want, all)
		}
	}
}

func TestUnusableFiles(t *testing.T) {
	write := func(data string) func(*testing.T, string) {
		return func(t *testing.T, path string) { must(t, os.WriteFile(path, []byte(data), 0o600)) }
	}
	for _, test := range []struct {
		name string
		make func(t *testing.T, path string)
		want string
	}{
		{"missing", func(*testing.T, string) {}, "does not exist"},
		{"directory", func(t *testing.T, path string) { must(t, os.Mkdir(path, 0o700)) }, "is a directory; expected a file"},
		{"loop", func(t *testing.T, path string) { must(t, os.Symlink(path, path)) }, "cannot be read: too many levels of symbolic links"},
		{"below a file", func(t *testing.T, path string) {
			must(t, os.Symlink("/dev/null/x", path))
		}, "cannot be read: not a directory"},
		{"device", func(t *testing.T, path string) { must(t, os.Symlink("/dev/zero", path)) }, "is not a regular file"},
		{"10 MB", write(head + strings.Repeat("# 1234567\n", 1<<20)), "has more than 1048576 bytes"},
		{"binary", write("\x7fELF\x02\x01\x01\x00"), "is not UTF-8 text"},
		{"empty", write(""), "is empty"},
		{"broken", write(head + "server: {"), "config.yaml:3:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			test.make(t, path)
			snapshot, errs := Load(Options{Scheme: scheme(), Path: path})
			if snapshot != nil || len(errs) != 1 {
				t.Fatalf("%+v, %d errors: %v", snapshot, len(errs), errs)
			}
			if got := errs.Error(); !strings.HasPrefix(got, path) || !strings.Contains(got, test.want) || strings.Count(got, path) != 1 {
				t.Errorf("got %q, want %s once, and %s", got, path, test.want)
			}
		})
	}
}

func TestWarningsAreLoggedAndKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "peer.yaml")
	must(t, os.WriteFile(path, []byte(`
apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1
kind: KubeControllerManagerConfiguration
Generic: {Debugging: {enableContentionProfiling: true}}
`), 0o600))
	var log bytes.Buffer
	snapshot, errs := Load(Options{Scheme: scheme(), Path: path, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if len(snapshot.Warnings) == 0 || !strings.Contains(log.String(), "enableContentionProfiling") {
		t.Errorf("warnings %v, log %s", snapshot.Warnings, &log)
	}
}
