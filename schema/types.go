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
// controller-manager process.
type ControllerManagerConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// Cluster is the cluster that is managed, and how to talk to it.
	Cluster Cluster `json:"cluster"`
	// LeaderElection configures the lease that the one active process holds.
	LeaderElection LeaderElection `json:"leaderElection"`
	// Server configures the HTTPS server.
	Server Server `json:"server"`
	// Logging configures the log.
	Logging Logging `json:"logging"`
	// Reload configures how changes of this file are picked up.
	Reload Reload `json:"reload"`
	// FeatureGates turns features of Kubernetes on and off, by their names there.
	// Default: empty, each gate has its own default.
	FeatureGates map[string]bool `json:"featureGates" check:"keys=featureGate"`
	// Controllers holds one section per controller. A section may also stand under
	// the controller's alias.
	Controllers Controllers `json:"controllers"`
}

// Cluster says which cluster is managed, and how to talk to it.
type Cluster struct {
	// Name of the cluster, the scope of cloud resources. Default: kubernetes.
	Name string `json:"name" check:"nonempty"`
	// Kubeconfig is the path of the kubeconfig file. Default: empty, the pod's
	// service account.
	Kubeconfig string `json:"kubeconfig" check:"format=path"`
	// UseServiceAccountCredentials gives each controller the identity of its own
	// service account in kube-system, to which the roles are bound that the API
	// server bootstraps. Default: true.
	UseServiceAccountCredentials bool `json:"useServiceAccountCredentials"`
	// Client bounds the requests of each controller's client.
	Client Client `json:"client"`
	// AllocateNodeCIDRs lets node-ipam-controller give each node its pod CIDRs
	// out of ClusterCIDRs. Default: false.
	AllocateNodeCIDRs bool `json:"allocateNodeCIDRs"`
	// ClusterCIDRs are the ranges of pod addresses: one, or one of each address
	// family. Default: empty.
	ClusterCIDRs []string `json:"clusterCIDRs" check:"format=cidr,maxItems=2"`
	// ServiceCIDRs are the ranges of Service addresses, which node-ipam-controller
	// leaves out: one, or one of each address family. Default: empty.
	ServiceCIDRs []string `json:"serviceCIDRs" check:"format=cidr,maxItems=2"`
	// CloudProvider names the cloud that the three cloud controllers work on.
	CloudProvider CloudProvider `json:"cloudProvider"`
}

// CloudProvider names the cloud that service-lb-controller, node-route-controller
// and cloud-node-lifecycle-controller work on.
type CloudProvider struct {
	// Name of a provider that is compiled in; empty or external means none, and
	// the cloud controllers are then not available. Default: empty.
	Name string `json:"name" check:"format=dnsLabel"`
	// ConfigFile is the path of the provider's own configuration. Default: empty.
	ConfigFile string `json:"configFile" check:"format=path"`
	// AllowUntagged accepts a provider that has no cluster ID. Default: false.
	AllowUntagged bool `json:"allowUntagged"`
}

// Client bounds the requests of each controller's client.
type Client struct {
	// QPS of each controller's client. Default: 0, no client-side limit beyond
	// what API Priority and Fairness asks for.
	QPS float64 `json:"qps" check:"min=0,max=1000000"`
	// Burst above QPS. Default: 0; at least 1 when QPS is set.
	Burst int `json:"burst" check:"min=0,max=1000000"`
	// ContentType is the encoding of requests for built-in types.
	// Default: application/vnd.kubernetes.protobuf.
	ContentType string `json:"contentType" check:"oneof=application/vnd.kubernetes.protobuf|application/json"`
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
	// Enabled lets only the process that holds the lease run controllers; otherwise
	// this process must be the only one. Default: true.
	Enabled bool `json:"enabled"`
	// LeaseDuration is how long a candidate waits after the last observed
	// renewal before it takes the lease. Default: 15s.
	LeaseDuration metav1.Duration `json:"leaseDuration" check:"min=1s,max=1h"`
	// RenewDeadline is how long the leader tries to renew before it gives up. Default: 10s.
	RenewDeadline metav1.Duration `json:"renewDeadline" check:"min=10ms,max=1h"`
	// RetryPeriod is the time between two attempts. Default: 2s.
	RetryPeriod metav1.Duration `json:"retryPeriod" check:"min=10ms,max=1h"`
	// ResourceName is the name of the Lease. The default is that of
	// kube-controller-manager, so that either can take over from the other.
	// Default: kube-controller-manager.
	ResourceName string `json:"resourceName" check:"format=dnsSubdomain"`
	// ResourceNamespace is the namespace of the Lease. Default: kube-system.
	ResourceNamespace string `json:"resourceNamespace" check:"format=dnsLabel,nonempty"`
	// Standby is what a process that does not lead keeps ready: warm keeps
	// informers synced, so that taking over starts reconciling at once; cold starts
	// everything only when it leads. Default: warm.
	Standby Standby `json:"standby" check:"oneof=warm|cold"`
	// ReleaseOnExit gives the lease back on a clean exit. Default: true.
	ReleaseOnExit bool `json:"releaseOnExit"`
}

// Server configures the HTTPS server.
type Server struct {
	// BindAddress is the IP address to listen on. Default: 0.0.0.0.
	BindAddress string `json:"bindAddress" check:"format=ip"`
	// Port to listen on; 0 turns the server off. Default: 10257.
	Port int `json:"port" check:"min=0,max=65535"`
	// TLS configures the serving certificate.
	TLS ServerTLS `json:"tls"`
	// Authorization configures who may call the server.
	Authorization Authorization `json:"authorization"`
	// Profiling serves /debug/pprof. Default: true.
	Profiling bool `json:"profiling"`
}

// ServerTLS configures the serving certificate. Contents of the files are
// followed while the process runs.
type ServerTLS struct {
	// CertFile holds the serving certificate, with intermediates after it, in PEM.
	// Default: empty, a self-signed certificate is made in memory.
	CertFile string `json:"certFile" check:"format=path"`
	// KeyFile holds the private key of CertFile, in PEM; both are given or neither.
	// Default: empty.
	KeyFile string `json:"keyFile" check:"format=path"`
	// ClientCAFile holds the CAs of client certificates, in PEM. Default: empty, the CA that the
	// API server publishes in kube-system/extension-apiserver-authentication.
	ClientCAFile string `json:"clientCAFile" check:"format=path"`
	// MinVersion is the least version of TLS. Default: VersionTLS12.
	MinVersion string `json:"minVersion" check:"oneof=VersionTLS12|VersionTLS13"`
	// CipherSuites are the cipher suites of TLS 1.2, by IANA name; HTTP/2 needs an ECDHE suite with
	// AES_128_GCM_SHA256 among them. Default: empty, Go's.
	CipherSuites []string `json:"cipherSuites" check:"format=cipherSuite"`
}

// Authorization configures who may call the server.
type Authorization struct {
	// AlwaysAllowPaths are paths that need neither authentication nor authorization; a
	// trailing * matches a prefix. Default: /healthz, /readyz, /livez.
	AlwaysAllowPaths []string `json:"alwaysAllowPaths" check:"format=pathPattern"`
}

// Logging configures the log.
type Logging struct {
	// Format of the log: text, json, or auto, which is text on a terminal and JSON
	// otherwise. Default: auto.
	Format string `json:"format" check:"oneof=auto|text|json"`
	// Level is a verbosity as Kubernetes counts it: 0 for what an operator should always see, up to 10
	// for everything. Default: 0.
	Level int `json:"level" check:"min=0,max=10"`
	// Modules sets the level of single controllers, by canonical name, or of
	// engine packages (client, client-go, config, discovery, election,
	// events, informers, manager, server, supervisor).
	Modules map[string]int `json:"modules" check:"min=0,max=10,keys=module"`
}

// Reload configures how changes of the file are picked up.
type Reload struct {
	// Debounce is how long the file must be quiet before it is read. Default: 100ms.
	Debounce metav1.Duration `json:"debounce" check:"min=0s,max=1m"`
	// PollInterval is how often the content is compared when the file system
	// sends no events; 0 turns polling off. Default: 10s.
	PollInterval metav1.Duration `json:"pollInterval" check:"min=0s,max=1h"`
	// DrainTimeout is how long a stopping controller's reconciles may finish
	// with a live context. Default: 30s.
	DrainTimeout metav1.Duration `json:"drainTimeout" check:"min=0s,max=1h"`
}
