package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

const (
	rolloutDeployments = 50
	rolloutReplicas    = 20
	// quiet is for how long a program must send nothing to count as done, and
	// settle how long that may take: events are sent late and slowly.
	quiet  = 3 * time.Second
	settle = 90 * time.Second
)

// requests of one program; renewals of its lease are not among them.
type requests struct {
	writes, reads, events int
	took                  time.Duration
	// usage in all, CPU for the work alone.
	usage usage
	// kinds of requests, for a look at what a number consists of.
	kinds map[string]int
}

func count(entries []auditv1.Event) requests {
	r := requests{kinds: map[string]int{}}
	for i := range entries {
		e := &entries[i]
		resource := ""
		if e.ObjectRef != nil {
			resource = e.ObjectRef.Resource
			if e.ObjectRef.Subresource != "" {
				resource += "/" + e.ObjectRef.Subresource
			}
		}
		if resource == "leases" {
			continue
		}
		switch {
		case resource == "events":
			r.events++
		case e.Verb == "get" || e.Verb == "list" || e.Verb == "watch":
			r.reads++
		default:
			r.writes++
		}
		code := int32(0)
		if e.ResponseStatus != nil {
			code = e.ResponseStatus.Code
		}
		r.kinds[fmt.Sprintf("%s %s %d", e.Verb, resource, code)]++
	}
	return r
}

// workload is work for the programs.
type workload struct {
	what  string
	nodes int
	// prepare makes what must be there before the measured work. May be nil.
	prepare func(b *testing.B, client kubernetes.Interface, namespace string)
	// run returns when the work is done, and since when the program could do it.
	run func(b *testing.B, client kubernetes.Interface, namespace string) (since time.Time)
}

// measureWork measures what the program needs for w.
func measureWork(
	b *testing.B, name string, w workload, match func(auditv1.Event) bool, start func(*testing.B, *controlplane.ControlPlane) program,
) requests {
	b.Helper()
	var r requests
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			cp, client := controlPlane(b, controlplane.Options{Nodes: w.nodes, Scheduler: true})
			p := start(b, cp)
			awaitReconciling(b, client, cp.Namespace(b), "probe")
			namespace := cp.Namespace(b)
			if w.prepare != nil {
				w.prepare(b, client, namespace)
			}
			awaitQuiet(b, cp, 0, match)
			from, err := cp.Audit().Position()
			if err != nil {
				b.Fatal(err)
			}
			before, err := measure(p.PID())
			if err != nil {
				b.Fatal(err)
			}
			since := w.run(b, client, namespace)
			took := time.Since(since)
			r = awaitQuiet(b, cp, from, match)
			r.took = took
			if r.usage, err = measure(p.PID()); err != nil {
				b.Fatal(err)
			}
			r.usage.cpu -= before.cpu
		}
		for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
			b.Logf("%5d %s", r.kinds[kind], kind)
		}
		b.ReportMetric(float64(r.writes), "writes")
		b.ReportMetric(float64(r.reads), "reads")
		b.ReportMetric(float64(r.events), "events")
	})
	return r
}

// awaitQuiet waits until the program sends no more requests and counts those from a position on.
func awaitQuiet(b *testing.B, cp *controlplane.ControlPlane, from controlplane.AuditPosition, match func(auditv1.Event) bool) requests {
	b.Helper()
	var last requests
	total, since := -1, time.Now()
	within(b, settle, 500*time.Millisecond, "no further requests", func(context.Context) (bool, error) {
		entries, err := cp.Audit().Requests(from, match)
		if err != nil {
			return false, err
		}
		last = count(entries)
		if n := last.writes + last.reads + last.events; n != total {
			total, since = n, time.Now()
			return false, errors.New("it still sends requests")
		}
		return time.Since(since) >= quiet, nil
	})
	return last
}

func measureDaemon(b *testing.B, w workload) requests {
	b.Helper()
	return measureWork(b, "daemon", w, func(e auditv1.Event) bool { return isDaemon(e.UserAgent) },
		func(b *testing.B, cp *controlplane.ControlPlane) program { b.Helper(); return startDaemon(b, cp) })
}

func measurePeer(b *testing.B, name string, w workload, args ...string) requests {
	b.Helper()
	return measureWork(b, name, w, controlplane.FromPeer,
		func(b *testing.B, cp *controlplane.ControlPlane) program {
			b.Helper()
			return startPeer(b, cp, args...)
		})
}

// inTurn measures both programs twice: the one, the other, the other, the one.
// That takes out of the ratios that a machine may become faster or slower.
func inTurn(ours, theirs func() requests) (our, their requests) {
	first := ours()
	their = mean(theirs(), theirs())
	return mean(first, ours()), their
}

// mean is nothing if one of the two was left out.
func mean(a, b requests) requests {
	if a.took == 0 || b.took == 0 {
		return requests{}
	}
	return requests{
		writes: (a.writes + b.writes) / 2,
		reads:  (a.reads + b.reads) / 2,
		events: (a.events + b.events) / 2,
		took:   (a.took + b.took) / 2,
		usage:  usage{cpu: (a.usage.cpu + b.usage.cpu) / 2, resident: (a.usage.resident + b.usage.resident) / 2},
	}
}

// compare adds the rows of a workload to the results.
func compare(what string, ours, theirs requests) {
	if ours.took == 0 || theirs.took == 0 {
		return // left out by -bench, or failed and said so
	}
	results.add(what+": time", "s", ours.took.Seconds(), theirs.took.Seconds())
	results.add(what+": writes", "", float64(ours.writes), float64(theirs.writes))
	results.add(what+": reads", "", float64(ours.reads), float64(theirs.reads))
	results.add(what+": events sent", "", float64(ours.events), float64(theirs.events))
	results.add(what+": CPU", "s", ours.usage.cpu.Seconds(), theirs.usage.cpu.Seconds())
	results.add(what+": resident memory after it", "MiB", float64(ours.usage.resident)/(1<<20), float64(theirs.usage.resident)/(1<<20))
}

// withoutLimits are the flags of a peer that nothing slows down.
var withoutLimits = []string{"--kube-api-qps=10000", "--kube-api-burst=10000"}

func BenchmarkRollout(b *testing.B) {
	w := workload{
		what:  fmt.Sprintf("%d Deployments × %d pods", rolloutDeployments, rolloutReplicas),
		nodes: 4,
		run: func(b *testing.B, client kubernetes.Interface, namespace string) time.Time {
			b.Helper()
			since := time.Now()
			for i := range rolloutDeployments {
				create(b, client, namespace, fmt.Sprintf("web-%d", i), rolloutReplicas)
			}
			awaitAvailable(b, client, namespace, rolloutReplicas)
			return since
		},
	}
	ours, theirs := inTurn(
		func() requests { return measureDaemon(b, w) },
		func() requests { return measurePeer(b, "peer-without-limits", w, withoutLimits...) },
	)
	compare(w.what+"; peer with its default limits", ours, measurePeer(b, "peer-default-limits", w))
	compare(w.what+"; peer without limits", ours, theirs)
	results.write(b)
}
