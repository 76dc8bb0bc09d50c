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

// rollout measures what the program needs for all Deployments to be available.
func rollout(b *testing.B, name string, match func(auditv1.Event) bool, start func(*testing.B, *controlplane.ControlPlane)) requests {
	b.Helper()
	var r requests
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			cp, client := controlPlane(b, controlplane.Options{Nodes: 4, Scheduler: true})
			start(b, cp)
			awaitReconciling(b, client, cp.Namespace(b), "probe")
			namespace := cp.Namespace(b)
			awaitQuiet(b, cp, 0, match)
			from, err := cp.Audit().Position()
			if err != nil {
				b.Fatal(err)
			}
			began := time.Now()
			for i := range rolloutDeployments {
				create(b, client, namespace, fmt.Sprintf("web-%d", i), rolloutReplicas)
			}
			awaitAvailable(b, client, namespace, rolloutReplicas)
			took := time.Since(began)
			r = awaitQuiet(b, cp, from, match)
			r.took = took
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

func BenchmarkRollout(b *testing.B) {
	ours := rollout(b, "daemon", func(e auditv1.Event) bool { return isDaemon(e.UserAgent) },
		func(b *testing.B, cp *controlplane.ControlPlane) { b.Helper(); startDaemon(b, cp) })
	peer := func(name, against string, args ...string) {
		theirs := rollout(b, name, controlplane.FromPeer,
			func(b *testing.B, cp *controlplane.ControlPlane) { b.Helper(); startPeer(b, cp, args...) })
		if ours.took == 0 || theirs.took == 0 {
			return // left out by -bench, or failed and said so
		}
		what := func(s string) string {
			return fmt.Sprintf("%d × %d pods: %s; peer %s", rolloutDeployments, rolloutReplicas, s, against)
		}
		results.add(what("time until all are available"), "s", ours.took.Seconds(), theirs.took.Seconds())
		results.add(what("writes"), "", float64(ours.writes), float64(theirs.writes))
		results.add(what("reads"), "", float64(ours.reads), float64(theirs.reads))
		results.add(what("events sent"), "", float64(ours.events), float64(theirs.events))
	}
	peer("peer-default-limits", "with its default limits")
	peer("peer-without-limits", "without limits", "--kube-api-qps=10000", "--kube-api-burst=10000")
	results.write(b)
}
