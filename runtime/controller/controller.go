// Package controller says what a controller is: a description that the engine
// reads, and a constructor that is given everything the controller may use.
package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/discovery"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Descriptor describes one controller to the engine.
type Descriptor struct {
	// Section is the controller's part of the configuration; its Name is the
	// controller's name everywhere.
	Section schema.SectionType
	// ServiceAccount in kube-system whose identity the client has when
	// cluster.useServiceAccountCredentials is set; empty means the daemon's own.
	ServiceAccount string
	// EventSource is the source component of Env.Events. Default: the controller's name.
	EventSource string
	// Requires are the resources without which the controller is Unavailable.
	Requires []apischema.GroupVersionResource
	// FeatureGates must all be on, else the controller is Unavailable.
	FeatureGates []string
	// Unavailable says why the controller cannot run with its section in this process,
	// whose Env.ServerCA is given, or nothing. It is asked again when one of them
	// changes. May be nil.
	Unavailable func(section schema.Section, serverCA []byte) string
	// ReadsFeatureGates change the controller's behaviour: when one of them
	// changes, the controller restarts.
	ReadsFeatureGates []string
	// ReadsCluster names the fields of Env.Cluster that the controller reads, by JSON
	// name, such as clusterCIDRs: when one of them changes, the controller restarts.
	ReadsCluster []string
	// Monitors tells that the controller looks at whatever is served, see
	// informers.Lease.Monitor. It is made after the others that may run, so that it
	// finds their informers and keeps no second copy of what they hold.
	Monitors bool
	// Rules are what the controller's identity must be allowed to do.
	Rules []rbacv1.PolicyRule
	// LiveFields of the section, by JSON name, are applied by
	// Controller.ApplyLive instead of a restart. Workers is always live.
	LiveFields []string
	// New makes a controller that is not running yet. It writes nothing to the
	// API, so that a standby can be made ready by it. It may be called again
	// before an earlier one has been stopped, in tests.
	New func(env Env, section schema.Section) (*Controller, error)
}

// Name of the controller.
func (d Descriptor) Name() string { return d.Section.Name }

// EventComponent is the source component of the controller's events.
func (d Descriptor) EventComponent() string { return cmp.Or(d.EventSource, d.Name()) }

// Controller is what New leaves for the engine to run. Its queues and event
// handlers were made through Env; the engine starts and stops them.
type Controller struct {
	// ApplyLive takes a section in which only LiveFields differ. Nil when there are none.
	ApplyLive func(schema.Section)
	// Handler is served below /debug/controllers/NAME/. May be nil. If it is a
	// Summarizer too, its summary is part of /debug/controllers/NAME.
	Handler http.Handler
	// Runners are loops that no queue can express. Each returns soon after
	// its context ends; an error or an early return fails the controller.
	Runners []func(ctx context.Context) error
}

// Summarizer sums up what a controller knows, as JSON. It may be called concurrently.
type Summarizer interface {
	Summary() any
}

// Env is a controller's whole world.
type Env struct {
	// Name of the controller.
	Name   string
	Logger *slog.Logger
	Clock  clock.WithTicker
	// Client, Metadata and Dynamic have the controller's identity and limits,
	// refuse writes while this process may not lead, and record what they
	// write. Not for list or watch where Informers serve.
	Client   kubernetes.Interface
	Metadata metadata.Interface
	Dynamic  dynamic.Interface
	// Informers lends the process's informers for the life of the controller.
	Informers *informers.Lease
	// Discovery knows the served resources, for controllers that look after all of them.
	Discovery *discovery.Discovery
	// Work owns the controller's queues; make them with work.NewQueue.
	Work *work.Group
	// Events records events whose source component is Descriptor.EventComponent.
	Events record.EventRecorder
	// Memory outlives restarts. May be nil: use Recall.
	Memory *Memory
	// Metrics is the controller's registry, which outlives restarts: use
	// telemetry.Register, which returns the collector registered before.
	Metrics prometheus.Registerer
	// FeatureEnabled tells whether a feature gate is on.
	FeatureEnabled func(gate string) bool
	Cluster        schema.Cluster
	// ServerCA returns the PEM bundle by which this process verifies the API server,
	// empty when it trusts the system's roots, and a channel that is closed when it
	// is no longer this one. The bundle must not be changed.
	ServerCA func() (bundle []byte, changed <-chan struct{})
}

// NewFor adapts a constructor that wants its own section type.
func NewFor[S schema.Section](construct func(Env, S) (*Controller, error)) func(Env, schema.Section) (*Controller, error) {
	return func(env Env, section schema.Section) (*Controller, error) {
		typed, ok := section.(S)
		if !ok {
			return nil, fmt.Errorf("controller %s: section is a %T, want a %T", env.Name, section, typed)
		}
		return construct(env, typed)
	}
}
