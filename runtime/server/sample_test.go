package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/election"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// sampleNow is a moment in the life of the sample daemon.
var sampleNow = time.Now()

func before(d time.Duration) time.Time { return sampleNow.Add(-d) }

type sampleSection struct {
	schema.ControllerSettings `json:",inline"`
	SyncPeriod                metav1.Duration `json:"syncPeriod"`
}

// sample is a leader with one controller that fails.
func sample() Sources {
	digest := strings.Repeat("9f2c41d07be8", 6)[:64]
	section := &sampleSection{ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 5}, SyncPeriod: metav1.Duration{Duration: 5 * time.Minute}}
	cfg := &schema.ControllerManagerConfiguration{
		TypeMeta:       metav1.TypeMeta{APIVersion: schema.APIVersion, Kind: schema.Kind},
		Cluster:        schema.Cluster{Name: "fra-prod-1"},
		LeaderElection: schema.LeaderElection{Enabled: true, ResourceNamespace: "kube-system", ResourceName: "kube-controller-manager"},
		Controllers:    schema.Controllers{Sections: map[string]schema.Section{"deployment-controller": section}},
	}
	step := func(controller string, action supervisor.Action, reason string) supervisor.Step {
		return supervisor.Step{Controller: controller, Action: action, Reason: reason}
	}
	return Sources{
		Config: func() ConfigStatus {
			return ConfigStatus{
				Running: &config.Snapshot{
					Config:   cfg,
					Digest:   digest,
					Path:     "/etc/wheelhouse/controller-manager.yaml",
					LoadedAt: before(14 * time.Minute),
					Trigger:  "event",
					Origins: map[string]schema.Origin{
						"controllers.deployment-controller.workers": {
							Layer: "file", Source: "/etc/wheelhouse/controller-manager.yaml", Line: 21, Column: 14,
						},
						"logging.level": {Layer: "env", Source: "WHEELHOUSE_LOGGING_LEVEL"},
						"cluster.name":  {Layer: "default"},
					},
				},
				PendingRestart: []PendingRestart{{
					Path: "leaderElection.resourceName", Running: "kube-controller-manager", Wanted: "wheelhouse",
				}},
			}
		},
		Controllers: func() []supervisor.Status {
			list := []supervisor.Status{
				{
					Name: "deployment-controller", State: supervisor.Running, Since: before(14 * time.Minute), Restarts: 1,
					Work: work.Status{Wanted: 5, Running: 5, Busy: 3, Depth: 12, Oldest: 1400 * time.Millisecond},
				},
				{
					Name: "replicaset-controller", State: supervisor.Running, Since: before(29 * time.Hour),
					Work: work.Status{Wanted: 8, Running: 8, Busy: 7, Depth: 164, Oldest: 4200 * time.Millisecond},
				},
				{
					Name: "serviceaccount-controller", State: supervisor.Running, Since: before(29 * time.Hour),
					Work: work.Status{Wanted: 1, Running: 1},
				},
				{
					Name: "ttl-after-finished-controller", State: supervisor.Failed, Since: before(22 * time.Second),
					Reason: "starts again in 10 s", Restarts: 4, Informers: []string{"batch/v1 jobs"},
					Work:      work.Status{Wanted: 5},
					LastError: "panic: assignment to entry in nil map",
				},
			}
			for _, name := range []string{"cronjob-controller", "daemonset-controller", "job-controller", "statefulset-controller"} {
				list = append(list, supervisor.Status{
					Name: name, State: supervisor.Unavailable, Since: before(29 * time.Hour), Reason: "not in this build",
				})
			}
			return append(list, supervisor.Status{
				Name: "bootstrap-signer-controller", State: supervisor.Disabled, Since: before(29 * time.Hour), Reason: "disabled by the file",
			})
		},
		ControllerHandler: func(name string) http.Handler {
			if name != "deployment-controller" {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, " ", r.URL.Path) })
		},
		Reloads: func() []Reload {
			return []Reload{
				{
					At: before(14 * time.Minute), Trigger: "event", Digest: digest, Result: Applied, Took: 41 * time.Millisecond,
					Plan: []supervisor.Step{
						step("replicaset-controller", supervisor.Resize, "workers 5 → 8"),
						step("deployment-controller", supervisor.Restart, "progressDeadline 5m → 10m"),
						{Setting: "leaderElection.resourceName", Action: supervisor.Pending, Reason: "needs a restart of the process"},
					},
				},
				{
					At: before(16 * time.Minute), Trigger: "event", Digest: strings.Repeat("41c0", 16), Result: Rejected,
					Took: 3 * time.Millisecond, Errors: []schema.Error{{
						Origin:  schema.Origin{Layer: "file", Source: "controller-manager.yaml", Line: 18, Column: 14},
						Path:    "controllers.replicaset-controller.workers",
						Message: "-8 is too small: at least 1 is needed",
					}},
				},
				{
					At: before(5 * time.Hour), Trigger: "signal", Digest: strings.Repeat("b70e", 16), Result: Applied,
					Took: 1280 * time.Millisecond,
					Plan: []supervisor.Step{step("bootstrap-signer-controller", supervisor.Stop, "enabled true → false")},
				},
				{At: before(29 * time.Hour), Trigger: "start", Digest: strings.Repeat("b70e", 16), Result: Applied, Took: 212 * time.Millisecond},
			}
		},
		Election: func() election.Status {
			return election.Status{
				Leader: true, Identity: "cp-1_7c5be1f0-5d2a-4a0e-9d58-2f6f1f0a7c11", Holder: "cp-1_7c5be1f0-5d2a-4a0e-9d58-2f6f1f0a7c11",
				AcquiredAt: before(29 * time.Hour), RenewedAt: before(1200 * time.Millisecond), Transitions: 6,
			}
		},
		Informers: func() []informers.Status {
			return []informers.Status{
				{Resource: "apps/v1 deployments", Users: []string{"deployment-controller"}, Objects: 418, Synced: true, ResourceVersion: "88214071"},
				{
					Resource: "apps/v1 replicasets", Users: []string{"deployment-controller", "replicaset-controller"}, Objects: 1630,
					Synced: true, ResourceVersion: "88214077",
				},
				{
					Resource: "v1 pods", Users: []string{"deployment-controller", "replicaset-controller"}, Objects: 6114,
					Synced: true, ResourceVersion: "88214080",
				},
				{Resource: "batch/v1 jobs", Users: []string{"ttl-after-finished-controller"}, Objects: 97, Synced: true, ResourceVersion: "88213990"},
			}
		},
		Checks: func() []Check {
			ok := func(context.Context) error { return nil }
			return []Check{
				{Name: "leaderElection", Live: true, Ready: true, Check: ok},
				{Name: "deployment-controller", Check: ok},
				{Name: "replicaset-controller", Check: ok},
				{Name: "ttl-after-finished-controller", Check: func(context.Context) error {
					return errors.New("failed 22 s ago: panic: assignment to entry in nil map")
				}},
			}
		},
		LogLevel:    func() int { return 2 },
		SetLogLevel: func(int) error { return nil },
		Metrics:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "workqueue_depth 0\n") }),
	}
}
