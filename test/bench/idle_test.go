package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

const (
	idleDeployments = 200
	idleFor         = 20 * time.Second
	// ticksPerSecond is USER_HZ, the unit of times in /proc/PID/stat on every Linux architecture that Go supports.
	ticksPerSecond = 100
)

// usage of a process.
type usage struct {
	cpu      time.Duration
	resident int // bytes
}

// measure reads /proc.
func measure(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, fmt.Errorf("read the use of CPU: %w", err)
	}
	cpu, err := parseCPU(stat)
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

// parseCPU adds user and system time, fields 14 and 15 of /proc/PID/stat. The
// name, field 2, is in parentheses and may hold spaces.
func parseCPU(stat []byte) (time.Duration, error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("read the use of CPU: %d fields after the name: %q", len(fields), stat)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the use of CPU: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
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
