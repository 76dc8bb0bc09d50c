// Package schema is the configuration API of Wheelhouse: its types, their
// defaults, strict decoding, validation, conversion from the dialects of
// kube-controller-manager, and the JSON Schema made from the types.
package schema

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// APIVersion is the apiVersion of the configuration file.
	APIVersion = "config.wheelhouse.dev/v1alpha1"
	// Kind is the kind of the configuration file.
	Kind = "ControllerManagerConfiguration"
	// Group keys the configuration in /configz.
	Group = "config.wheelhouse.dev"
)

// ControllerManagerConfiguration is the whole desired behaviour of one
// controller-manager process. Default returns it with every default set.
type ControllerManagerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	Cluster        Cluster         `json:"cluster"`
	LeaderElection LeaderElection  `json:"leaderElection"`
	Server         Server          `json:"server"`
	Logging        Logging         `json:"logging"`
	Reload         Reload          `json:"reload"`
	FeatureGates   map[string]bool `json:"featureGates"`
	Controllers    Controllers     `json:"controllers"`
}

// Cluster says which cluster is managed, and how to talk to it.
type Cluster struct {
	// Name of the cluster. Default: kubernetes.
	Name string `json:"name"`
	// Kubeconfig is the path of the kubeconfig file. Default: empty, which
	// means the pod's service account.
	Kubeconfig string `json:"kubeconfig"`
	// UseServiceAccountCredentials gives each controller the identity of its
	// own service account in kube-system. Default: true, because the roles that
	// the API server bootstraps are bound to these accounts.
	UseServiceAccountCredentials bool   `json:"useServiceAccountCredentials"`
	Client                       Client `json:"client"`
	// AllocateNodeCIDRs, ClusterCIDRs and ServiceCIDRs are read by the node
	// IPAM controller. Default: false and empty.
	AllocateNodeCIDRs bool     `json:"allocateNodeCIDRs"`
	ClusterCIDRs      []string `json:"clusterCIDRs"`
	ServiceCIDRs      []string `json:"serviceCIDRs"`
}

// Client bounds the requests of each controller's client.
type Client struct {
	// QPS of each controller's client. Default: 0, no client-side limit beyond
	// what API Priority and Fairness asks for.
	QPS float64 `json:"qps"`
	// Burst above QPS. Default: 0; at least 1 when QPS is set.
	Burst int `json:"burst"`
	// ContentType of requests for built-in types.
	// Default: application/vnd.kubernetes.protobuf.
	ContentType string `json:"contentType"`
}

// Standby says what a process that does not lead keeps ready.
type Standby string

const (
	// StandbyWarm keeps informers synced, so that taking over starts reconciling at once.
	StandbyWarm Standby = "warm"
	// StandbyCold starts everything only when it leads.
	StandbyCold Standby = "cold"
)

// LeaderElection configures the lease that the one active process holds.
// LeaseDuration > RenewDeadline > 1.2 × RetryPeriod > 0 must hold.
type LeaderElection struct {
	// Enabled. Default: true.
	Enabled bool `json:"enabled"`
	// LeaseDuration is how long a candidate waits after the last observed
	// renewal before it takes the lease. Default: 15s.
	LeaseDuration metav1.Duration `json:"leaseDuration"`
	// RenewDeadline is how long the leader tries to renew before it gives up. Default: 10s.
	RenewDeadline metav1.Duration `json:"renewDeadline"`
	// RetryPeriod between two attempts. Default: 2s.
	RetryPeriod metav1.Duration `json:"retryPeriod"`
	// ResourceName and ResourceNamespace of the Lease.
	// Default: kube-system/kube-controller-manager.
	ResourceName      string `json:"resourceName"`
	ResourceNamespace string `json:"resourceNamespace"`
	// Standby. Default: warm.
	Standby Standby `json:"standby"`
	// ReleaseOnExit gives the lease back on a clean exit. Default: true.
	ReleaseOnExit bool `json:"releaseOnExit"`
}

// Server configures the HTTPS server.
type Server struct {
	// BindAddress is an IP address. Default: 0.0.0.0.
	BindAddress string `json:"bindAddress"`
	// Port, 0 turns the server off. Default: 10257.
	Port          int           `json:"port"`
	TLS           ServerTLS     `json:"tls"`
	Authorization Authorization `json:"authorization"`
	// Profiling serves /debug/pprof. Default: true.
	Profiling bool `json:"profiling"`
}

// ServerTLS configures the serving certificate. Contents of the files are
// followed while the process runs.
type ServerTLS struct {
	// CertFile and KeyFile, together or not at all. Default: empty, a
	// self-signed certificate is made in memory.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// ClientCAFile verifies client certificates. Default: empty, the CA that the
	// API server publishes in kube-system/extension-apiserver-authentication.
	ClientCAFile string `json:"clientCAFile"`
	// MinVersion is VersionTLS12 or VersionTLS13. Default: VersionTLS12.
	MinVersion string `json:"minVersion"`
	// CipherSuites for TLS 1.2 by IANA name. Default: Go's.
	CipherSuites []string `json:"cipherSuites"`
}

// Authorization configures who may call the server.
type Authorization struct {
	// AlwaysAllowPaths need neither authentication nor authorization; a
	// trailing * matches a prefix. Default: /healthz, /readyz, /livez.
	AlwaysAllowPaths []string `json:"alwaysAllowPaths"`
}

// Logging configures the log.
type Logging struct {
	// Format is auto (text on a terminal, JSON otherwise), text or json. Default: auto.
	Format string `json:"format"`
	// Level is a Kubernetes verbosity, 0 to 10. Default: 0.
	Level int `json:"level"`
	// Modules sets the level of single controllers, by canonical name, or of
	// engine packages (config, supervisor, election, informers, work, client, server).
	Modules map[string]int `json:"modules"`
}

// Reload configures how changes of the file are picked up.
type Reload struct {
	// Debounce is how long the file must be quiet before it is read. Default: 100ms.
	Debounce metav1.Duration `json:"debounce"`
	// PollInterval is how often the content is compared when the file system
	// sends no events; 0 turns polling off. Default: 10s.
	PollInterval metav1.Duration `json:"pollInterval"`
	// DrainTimeout is how long a stopping controller's reconciles may finish
	// with a live context. Default: 30s.
	DrainTimeout metav1.Duration `json:"drainTimeout"`
}
