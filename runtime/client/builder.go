// Package client makes the clients of the daemon and of its controllers. Their
// credentials and limits change while they are in use, they refuse writes while
// this process may not lead, and they record what they write.
package client

import (
	"log/slog"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// Options of a Builder. Fence and Logger are required.
type Options struct {
	// Kubeconfig is the path of the kubeconfig file. Default: empty, which
	// means the pod's service account.
	Kubeconfig string
	// UseServiceAccountCredentials gives each controller the identity of its
	// own service account in kube-system.
	UseServiceAccountCredentials bool
	// ContentType of requests for built-in types.
	// Default: application/vnd.kubernetes.protobuf.
	ContentType string
	// QPS and Burst of each controller's client. Default: 0, no limit.
	QPS    float64
	Burst  int
	Fence  *Fence
	Logger *slog.Logger
}

// Builder makes clients. All of them share its connections, which follow the
// credentials' files.
type Builder struct{}

// Clients of one controller.
type Clients struct {
	Kubernetes kubernetes.Interface
	Metadata   metadata.Interface
	Dynamic    dynamic.Interface
}

// New loads the credentials. It sends nothing.
func New(o Options) (*Builder, error) { return &Builder{}, nil }

// Root returns a configuration with the daemon's own identity whose writes are
// fenced. name ends its user agent.
func (b *Builder) Root(name string) *rest.Config { return nil }

// Unfenced returns a configuration with the daemon's own identity whose writes
// pass always: for the leader lease, events, and access reviews.
func (b *Builder) Unfenced(name string) *rest.Config { return nil }

// For returns the clients of a controller and the marks of all their writes.
// The same controller gets the same ones for the life of the Builder. Nothing
// is sent before their first use.
func (b *Builder) For(controller, serviceAccount string) (Clients, *Marks, error) {
	return Clients{}, nil, nil
}

// Written merges the marks of all controllers.
func (b *Builder) Written() map[schema.GroupResource]string { return nil }

// SetLimits changes QPS and Burst of every controller that has no limits of its own.
func (b *Builder) SetLimits(qps float64, burst int) {}

// Reload reads the credentials again and tells whether anything changed. After
// an error the ones in use stay in use.
func (b *Builder) Reload() (changed bool, err error) { return false, nil }

// Files are the files that Reload reads, absolute and sorted: the kubeconfig and what it refers to.
func (b *Builder) Files() []string { return nil }

// Close ends watches and closes idle connections. Requests fail afterwards.
func (b *Builder) Close() {}
