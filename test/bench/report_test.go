package bench

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// row compares one measure.
type row struct {
	what, unit  string
	ours, peers float64
}

// report is what has been measured so far.
type report struct{ rows []row }

// add replaces an earlier row of the same measure.
func (r *report) add(what, unit string, ours, peers float64) {
	fresh := row{what: what, unit: unit, ours: ours, peers: peers}
	if i := slices.IndexFunc(r.rows, func(x row) bool { return x.what == what }); i >= 0 {
		r.rows[i] = fresh
		return
	}
	r.rows = append(r.rows, fresh)
}

const tableHead = "| | Wheelhouse | kube-controller-manager | ratio |\n| --- | ---: | ---: | ---: |\n"

// table is in Markdown. It begins with the table in an earlier document, if there
// is one, whose rows stay where they are unless they were measured again.
func (r *report) table(earlier string) string {
	_, rest, _ := strings.Cut(earlier, tableHead)
	var lines []string
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		lines = append(lines, line)
	}
	for _, x := range r.rows {
		ratio := "–"
		if x.peers != 0 {
			ratio = fmt.Sprintf("%.2f", x.ours/x.peers)
		}
		line := fmt.Sprintf("| %s | %s | %s | %s |\n", x.what, quantity(x.ours, x.unit), quantity(x.peers, x.unit), ratio)
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "| "+x.what+" |") }); i >= 0 {
			lines[i] = line
		} else {
			lines = append(lines, line)
		}
	}
	return tableHead + strings.Join(lines, "")
}

// quantity has three digits or so; a number without unit is a count.
func quantity(v float64, unit string) string {
	switch {
	case unit == "":
		return fmt.Sprintf("%.0f", v)
	case v < 10:
		return fmt.Sprintf("%.2f %s", v, unit)
	default:
		return fmt.Sprintf("%.1f %s", v, unit)
	}
}

// prose is docs/benchmarks.md but for the machine, the peer's version and the table.
const prose = `# Benchmarks

What the daemon needs for its work beside kube-controller-manager, called the peer here. Made by
` + "`BENCH_DOC=docs/benchmarks.md make bench`" + `; do not edit. The ratios (ours to the peer's, less is
better) are what matters: both were measured in the same run, on the same machine, on control planes
of the same kind. Absolute numbers say more about the machine, and times vary from run to run.

Measured on %d CPUs, %s/%s, %s, against kube-controller-manager %s.

%s
How it is measured:

- The control plane is real: etcd, kube-apiserver, kube-scheduler, and nodes simulated by kwok, 4 unless said otherwise. The
  daemon has its default configuration. The peer runs only the controllers that the daemon has as
  well: %s.
- Pods: each program rolls the Deployments out on a fresh control plane, once it leads and is quiet.
  The time runs from the first create until all are available. Requests are counted from the API
  server's audit log by user agent, until the program has sent none for %s, because events are sent
  late; renewals of the lease are left out. The least possible number of writes is 1,150: 1,000 pods,
  50 ReplicaSets, and one status of each ReplicaSet and Deployment. The peer's default limits are 20
  requests a second with bursts of 30, for each controller's client; without limits means 10,000.
  kube-scheduler has no such limits here, so that it is not what is measured.
- Each program is measured twice, in turn: the one, the other, the other, the one. The row has the means.
- The other workloads run in the same way, on as many nodes as they say or 8, beside a peer without
  limits only. Pods of Jobs succeed as soon as they run. Rollouts of StatefulSet and
  DaemonSet: from the patch of the image until all pods are replaced and available, several one after the other. CronJobs: from the minute in which all
  are due until all have run. CPU is for the work alone, memory is what the process holds after it.
- Cascades, namespaces, quotas: from the deletion or the first change until everything is gone or
  counted. 5 seconds of the deletion of a namespace are the grace period in which both wait for what
  may still come. New namespaces: from the first creation until the last has its service account
  and the CA's certificates. A large Service: from the last change of a pod until it is listed.
- Large objects: memory once both have synced, among objects that nobody but the garbage collector
  looks at. Custom resources: from when the API server serves the last kind until the dependents of
  deleted owners of all kinds are gone.
- Fewer writes of the peer with its default limits than of the daemon are an effect of its slowness:
  what changes while it waits for its limiter goes into one status write.
- Events: the daemon joins those of one object and reason within a second, if they are more than a
  few, into one with their number. It does not name each pod then, as the peer does; that, and not
  less work, is the difference in events sent.
- Start: from the start of the process, with no lease held, until the ReplicaSet of a Deployment that
  existed before is seen; median of %[9]d. Restart: the same, but after a SIGTERM of the leader, whose
  lease stays as it leaves it: the daemon gives it back, the peer lets it run out.
- Reload: from the write of the file until the effect is seen in /debug/controllers, asked every 5 ms;
  median of %[10]d. It includes the debounce of 100 ms. The peer has no reload, so its restart is what
  the same change costs there.
- Idle: both start among the same Deployments of one pod each; CPU time and resident memory are from
  /proc, after the program has gone quiet. Both need so little CPU that the ratio varies widely.
- Binary: built with -ldflags "-s -w" and CGO_ENABLED=0. The peer's also holds the controllers that
  the daemon does not have.
`

// write puts the report into the file that BENCH_DOC names, relative to the
// module's root. What was not measured stays in it as it is. Each benchmark calls it, so that a run that breaks off has
// written what it measured.
func (r *report) write(b *testing.B) {
	b.Helper()
	path := os.Getenv("BENCH_DOC")
	if path == "" || len(r.rows) == 0 {
		return
	}
	root, err := controlplane.Root()
	if err != nil {
		b.Fatal(err)
	}
	version, err := controlplane.KubernetesVersion()
	if err != nil {
		b.Fatal(err)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(root, path)
	}
	earlier, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.Fatal(err)
	}
	text := fmt.Sprintf(prose, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), version, r.table(string(earlier)),
		strings.Join(peerControllers, ", "), quiet, startRepeats, reloads)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
}

// median of one or more.
func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

func TestTableHasRatios(t *testing.T) {
	var r report
	r.add("writes", "", 10, 20)
	r.add("reads", "", 1, 0)
	r.add("time", "s", 1.5, 20)
	r.add("writes", "", 15, 20)
	want := "| | Wheelhouse | kube-controller-manager | ratio |\n| --- | ---: | ---: | ---: |\n" +
		"| writes | 15 | 20 | 0.75 |\n| reads | 1 | 0 | – |\n| time | 1.50 s | 20.0 s | 0.07 |\n"
	if got := r.table(""); got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
	earlier := "# Benchmarks\n\n" + tableHead + "| memory | 1 | 2 | 0.50 |\n| reads | 4 | 2 | 2.00 |\n\n| other | table |\n"
	want = tableHead + "| memory | 1 | 2 | 0.50 |\n| reads | 1 | 0 | – |\n| writes | 15 | 20 | 0.75 |\n| time | 1.50 s | 20.0 s | 0.07 |\n"
	if got := r.table(earlier); got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}

func TestMedian(t *testing.T) {
	if got := median([]time.Duration{9, 1, 5}); got != 5 {
		t.Errorf("median of three: %d, want 5", got)
	}
	if got := median([]time.Duration{4, 1, 9, 6}); got != 5 {
		t.Errorf("median of four: %d, want 5", got)
	}
}

func TestParseRunTime(t *testing.T) {
	if got, err := parseRunTime("2000000000 17 3\n"); err != nil || got != 2*time.Second {
		t.Errorf("%v, %v, want 2s", got, err)
	}
	for _, text := range []string{"", "x 1 2", "5"} {
		if _, err := parseRunTime(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
