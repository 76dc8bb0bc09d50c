package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

const (
	idleDeployments = 1000
	idleFor         = 20 * time.Second
)

// usage of a process.
type usage struct {
	cpu      time.Duration
	resident int // bytes
}

// measure reads /proc.
func measure(pid int) (usage, error) {
	cpu, err := cpuTime(pid)
	if err != nil {
		return usage{}, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, fmt.Errorf("read the use of memory: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				return usage{}, fmt.Errorf("read the use of memory: %w", err)
			}
			return usage{cpu: cpu, resident: kib << 10}, nil
		}
	}
	return usage{}, fmt.Errorf("read the use of memory: no VmRSS of process %d", pid)
}

// cpuTime adds the run times of all threads, in nanoseconds, since an idle
// program needs little more than the 10 ms in which /proc/PID/stat counts. It
// misses threads that have ended, which those of a Go program rarely do.
func cpuTime(pid int) (time.Duration, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the use of CPU: %w", err)
	}
	if len(threads) == 0 {
		return 0, fmt.Errorf("read the use of CPU: process %d has no schedstat", pid)
	}
	var sum time.Duration
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			return 0, fmt.Errorf("read the use of CPU: %w", err)
		}
		ran, err := parseRunTime(string(text))
		if err != nil {
			return 0, err
		}
		sum += ran
	}
	return sum, nil
}

// parseRunTime reads the first field of schedstat: nanoseconds on a CPU.
func parseRunTime(schedstat string) (time.Duration, error) {
	ran, _, ok := strings.Cut(schedstat, " ")
	n, err := strconv.ParseInt(ran, 10, 64)
	if err != nil || !ok {
		return 0, fmt.Errorf("read the use of CPU: unexpected schedstat %q", schedstat)
	}
	return time.Duration(n), nil
}

// measureIdle starts the program anew, among objects that need nothing, and measures a while of idling.
func measureIdle(b *testing.B, cp *controlplane.ControlPlane, p program, match func(auditv1.Event) bool) usage {
	b.Helper()
	awaitQuiet(b, cp, 0, match)
	before, err := measure(p.PID())
	if err != nil {
		b.Fatal(err)
	}
	time.Sleep(idleFor) // the time is what is measured
	after, err := measure(p.PID())
	if err != nil {
		b.Fatal(err)
	}
	return usage{cpu: after.cpu - before.cpu, resident: after.resident}
}

func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		cp, client := controlPlane(b, controlplane.Options{Nodes: 4, Scheduler: true})
		namespace := cp.Namespace(b)
		d := startDaemon(b, cp)
		for i := range idleDeployments {
			create(b, client, namespace, fmt.Sprintf("idle-%d", i), 1)
		}
		awaitAvailable(b, client, namespace, 1)
		// Both start among the same objects, neither has made them.
		stopAndForget(b, client, d)
		if err := d.Process.Start(); err != nil {
			b.Fatal(err)
		}
		probes := cp.Namespace(b)
		awaitReconciling(b, client, probes, "daemon")
		ours := measureIdle(b, cp, d, func(e auditv1.Event) bool { return isDaemon(e.UserAgent) })
		stopAndForget(b, client, d)
		p := startPeer(b, cp)
		awaitReconciling(b, client, probes, "peer")
		theirs := measureIdle(b, cp, p, controlplane.FromPeer)

		what := fmt.Sprintf("%d idle Deployments: ", idleDeployments)
		results.add(what+"CPU in "+idleFor.String(), "s", ours.cpu.Seconds(), theirs.cpu.Seconds())
		results.add(what+"resident memory", "MiB", float64(ours.resident)/(1<<20), float64(theirs.resident)/(1<<20))
	}
	results.write(b)
}
