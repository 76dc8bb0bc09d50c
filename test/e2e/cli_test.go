package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

func TestTheCommandsTellTheirOutcomeByExitCode(t *testing.T) {
	cp := controlplane.Shared(t)
	d := start(t, cp, daemon.Options{})
	state(t, d, "replicaset-controller", "Running")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cp.WriteKubeconfig(kubeconfig, "admin", "system:masters"); err != nil {
		t.Fatal(err)
	}
	stranger := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cp.WriteKubeconfig(stranger, "stranger"); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte(badFiles[4]), 0o600); err != nil {
		t.Fatal(err)
	}
	status := []string{"status", "--server", d.URL, "--insecure-skip-tls-verify", "--kubeconfig"}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"version"}, 0, ""},
		{[]string{"controllers"}, 0, "deployment-controller"},
		{[]string{"completion", "bash"}, 0, "controller-manager"},
		{[]string{"config", "validate", d.File}, 0, ""},
		{[]string{"config", "validate", bad}, 1, `controllers`},
		{[]string{"config", "view", "--config", d.File, "--origin"}, 0, "controller-manager.yaml:"},
		{[]string{"config", "schema"}, 0, "$schema"},
		{[]string{"config", "convert", "--", "--concurrent-deployment-syncs=10"}, 0, "workers: 10"},
		{[]string{"config", "diff", bad, d.File}, 1, ""},
		{[]string{"--config", d.File, "--validate-only"}, 0, ""},
		{[]string{"--config", bad, "--validate-only"}, 1, "controllers"},
		{append(status, kubeconfig), 0, "replicaset-controller"},
		{append(status, stranger), 1, "forbidden"},
		{[]string{"status", "--output", "xml"}, 2, "xml"},
		{[]string{"config", "validate", "one", "two", "three"}, 2, ""},
		{[]string{"--no-such-flag"}, 2, "no-such-flag"},
		{[]string{"no-such-command"}, 2, "no-such-command"},
		{[]string{"statis"}, 2, "did you mean status?"},
		{[]string{"config", "vew"}, 2, "did you mean view?"},
	} {
		out, err := exec.CommandContext(t.Context(), binary, c.args...).CombinedOutput()
		code := 0
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%v: exit code %d, want %d and %q:\n%s", c.args, code, c.code, c.says, out)
		}
	}
	alone := exec.CommandContext(t.Context(), binary, "status")
	alone.Env = []string{"HOME=" + t.TempDir()}
	if out, err := alone.CombinedOutput(); err == nil || !strings.Contains(string(out), "give --kubeconfig") {
		t.Errorf("status without a kubeconfig: %v:\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary, append(append([]string(nil), status...), kubeconfig, "--output", "json")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var reply controllersReply
	if err := json.Unmarshal(out, &reply); err != nil || len(reply.Controllers) == 0 {
		t.Errorf("status as JSON: %d controllers, %v", len(reply.Controllers), err)
	}
}
