package schema

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BootstrapSignerController configures bootstrap-signer-controller, which signs
// the cluster-info ConfigMap with bootstrap tokens. Off by default.
type BootstrapSignerController struct {
	ControllerSettings `json:",inline"`
}

// BootstrapSignerControllerSection describes BootstrapSignerController.
func BootstrapSignerControllerSection() SectionType {
	return SectionType{
		Name:    "bootstrap-signer-controller",
		Aliases: []string{"bootstrapsigner"},
		New:     func() Section { return &BootstrapSignerController{ControllerSettings: disabledByDefault()} },
	}
}

// CertificateSigningRequestApprovingController configures
// certificatesigningrequest-approving-controller, which approves the client
// certificates of kubelets.
type CertificateSigningRequestApprovingController struct {
	ControllerSettings `json:",inline"`
}

// CertificateSigningRequestApprovingControllerSection describes CertificateSigningRequestApprovingController.
func CertificateSigningRequestApprovingControllerSection() SectionType {
	return SectionType{
		Name:    "certificatesigningrequest-approving-controller",
		Aliases: []string{"csrapproving"},
		New: func() Section {
			return &CertificateSigningRequestApprovingController{ControllerSettings: enabledByDefault(5)}
		},
	}
}

// CertificateSigningRequestCleanerController configures
// certificatesigningrequest-cleaner-controller, which deletes old requests.
type CertificateSigningRequestCleanerController struct {
	ControllerSettings `json:",inline"`
	// Interval between two passes. Default: 1h.
	Interval metav1.Duration `json:"interval" check:"min=1s,max=8760h"`
	// IssuedPeriod is how long an approved request with a certificate is kept. Default: 1h.
	IssuedPeriod metav1.Duration `json:"issuedPeriod" check:"min=1s,max=87600h"`
	// DeniedPeriod is how long a denied request is kept. Default: 1h.
	DeniedPeriod metav1.Duration `json:"deniedPeriod" check:"min=1s,max=87600h"`
	// FailedPeriod is how long a failed request is kept. Default: 1h.
	FailedPeriod metav1.Duration `json:"failedPeriod" check:"min=1s,max=87600h"`
	// PendingPeriod is how long a request without a decision is kept. Default: 24h.
	PendingPeriod metav1.Duration `json:"pendingPeriod" check:"min=1s,max=87600h"`
	// ApprovedPeriod is how long an approved request without a certificate is kept. Default: 24h.
	ApprovedPeriod metav1.Duration `json:"approvedPeriod" check:"min=1s,max=87600h"`
}

// CertificateSigningRequestCleanerControllerSection describes CertificateSigningRequestCleanerController.
func CertificateSigningRequestCleanerControllerSection() SectionType {
	return SectionType{
		Name:    "certificatesigningrequest-cleaner-controller",
		Aliases: []string{"csrcleaner"},
		New: func() Section {
			return &CertificateSigningRequestCleanerController{
				ControllerSettings: enabledByDefault(1),
				Interval:           duration(time.Hour),
				IssuedPeriod:       duration(time.Hour),
				DeniedPeriod:       duration(time.Hour),
				FailedPeriod:       duration(time.Hour),
				PendingPeriod:      duration(24 * time.Hour),
				ApprovedPeriod:     duration(24 * time.Hour),
			}
		},
	}
}

// CertificateSigningRequestSigningController configures
// certificatesigningrequest-signing-controller, which signs approved requests.
// Workers is per signer. It has nothing to do unless a CA is given: either
// CertFile and KeyFile for all four signers, or a pair each for some of them.
// Contents of the files are followed while the process runs: a pair that cannot be
// used is rejected, and the one before goes on signing.
type CertificateSigningRequestSigningController struct {
	ControllerSettings `json:",inline"`
	// CertFile holds the one CA certificate of all four signers, in PEM; the file is
	// followed while the process runs. Default: empty.
	CertFile string `json:"certFile" check:"format=path"`
	// KeyFile holds the private key of that CA, in PEM; the file is followed while the
	// process runs. Default: empty.
	KeyFile string `json:"keyFile" check:"format=path"`
	// KubeletServing is the CA of kubernetes.io/kubelet-serving.
	KubeletServing Signer `json:"kubeletServing"`
	// KubeletClient is the CA of kubernetes.io/kube-apiserver-client-kubelet.
	KubeletClient Signer `json:"kubeletClient"`
	// KubeAPIServerClient is the CA of kubernetes.io/kube-apiserver-client.
	KubeAPIServerClient Signer `json:"kubeAPIServerClient"`
	// LegacyUnknown is the CA of kubernetes.io/legacy-unknown.
	LegacyUnknown Signer `json:"legacyUnknown"`
	// Duration is the longest and the default life of a certificate. Default: 8760h.
	Duration metav1.Duration `json:"duration" check:"min=10m,max=876000h"`
}

// Signer is the CA of one signer. Contents of the files are followed while the
// process runs.
type Signer struct {
	// CertFile holds the one CA certificate, in PEM; the file is followed while the
	// process runs. Default: empty.
	CertFile string `json:"certFile" check:"format=path"`
	// KeyFile holds its private key, in PEM; the file is followed while the process
	// runs. Default: empty.
	KeyFile string `json:"keyFile" check:"format=path"`
}

// CertificateSigningRequestSigningControllerSection describes CertificateSigningRequestSigningController.
func CertificateSigningRequestSigningControllerSection() SectionType {
	return SectionType{
		Name:    "certificatesigningrequest-signing-controller",
		Aliases: []string{"csrsigning"},
		New: func() Section {
			return &CertificateSigningRequestSigningController{ControllerSettings: enabledByDefault(5), Duration: duration(8760 * time.Hour)}
		},
	}
}

// ClusterRoleAggregationController configures clusterrole-aggregation-controller,
// which fills the rules of aggregated ClusterRoles.
type ClusterRoleAggregationController struct {
	ControllerSettings `json:",inline"`
}

// ClusterRoleAggregationControllerSection describes ClusterRoleAggregationController.
func ClusterRoleAggregationControllerSection() SectionType {
	return SectionType{
		Name:    "clusterrole-aggregation-controller",
		Aliases: []string{"clusterrole-aggregation"},
		New:     func() Section { return &ClusterRoleAggregationController{ControllerSettings: enabledByDefault(5)} },
	}
}

// KubeAPIServerServingClusterTrustBundlePublisherController configures
// kube-apiserver-serving-clustertrustbundle-publisher-controller, which publishes
// the CA of the API server's serving certificate as a ClusterTrustBundle.
type KubeAPIServerServingClusterTrustBundlePublisherController struct {
	ControllerSettings `json:",inline"`
	// RootCAFile is the PEM bundle to publish; the file is followed while the process
	// runs, and while it cannot be used the bundle of before stays published.
	// Default: empty, the CA that the process itself trusts for the API server, which
	// is followed too.
	RootCAFile string `json:"rootCAFile" check:"format=path"`
}

// KubeAPIServerServingClusterTrustBundlePublisherControllerSection describes
// KubeAPIServerServingClusterTrustBundlePublisherController.
func KubeAPIServerServingClusterTrustBundlePublisherControllerSection() SectionType {
	return SectionType{
		Name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
		New: func() Section {
			return &KubeAPIServerServingClusterTrustBundlePublisherController{ControllerSettings: enabledByDefault(1)}
		},
	}
}

// LegacyServiceAccountTokenCleanerController configures
// legacy-serviceaccount-token-cleaner-controller, which marks and then deletes
// unused token Secrets.
type LegacyServiceAccountTokenCleanerController struct {
	ControllerSettings `json:",inline"`
	// Interval between two passes. Default: 24h.
	Interval metav1.Duration `json:"interval" check:"min=1s,max=8760h"`
	// CleanUpPeriod is how long a token must be unused before it is marked, and
	// again before it is deleted. Default: 8760h.
	CleanUpPeriod metav1.Duration `json:"cleanUpPeriod" check:"min=1s,max=876000h"`
}

// LegacyServiceAccountTokenCleanerControllerSection describes LegacyServiceAccountTokenCleanerController.
func LegacyServiceAccountTokenCleanerControllerSection() SectionType {
	return SectionType{
		Name:    "legacy-serviceaccount-token-cleaner-controller",
		Aliases: []string{"legacy-service-account-token-cleaner"},
		New: func() Section {
			return &LegacyServiceAccountTokenCleanerController{
				ControllerSettings: enabledByDefault(1),
				Interval:           duration(24 * time.Hour),
				CleanUpPeriod:      duration(8760 * time.Hour),
			}
		},
	}
}

// PodCertificateRequestCleanerController configures
// podcertificaterequest-cleaner-controller, which deletes old requests.
type PodCertificateRequestCleanerController struct {
	ControllerSettings `json:",inline"`
	// Interval between two passes. Default: 5m.
	Interval metav1.Duration `json:"interval" check:"min=1s,max=8760h"`
	// Threshold is the age at which a request is deleted. Default: 15m.
	Threshold metav1.Duration `json:"threshold" check:"min=1s,max=8760h"`
}

// PodCertificateRequestCleanerControllerSection describes PodCertificateRequestCleanerController.
func PodCertificateRequestCleanerControllerSection() SectionType {
	return SectionType{
		Name: "podcertificaterequest-cleaner-controller",
		New: func() Section {
			return &PodCertificateRequestCleanerController{
				ControllerSettings: enabledByDefault(1),
				Interval:           duration(5 * time.Minute),
				Threshold:          duration(15 * time.Minute),
			}
		},
	}
}

// RootCACertificatePublisherController configures
// root-ca-certificate-publisher-controller, which publishes the ConfigMap
// kube-root-ca.crt in every namespace.
type RootCACertificatePublisherController struct {
	ControllerSettings `json:",inline"`
	// RootCAFile is the PEM bundle to publish; the file is followed while the process
	// runs, and while it cannot be used the bundle of before stays published.
	// Default: empty, the CA that the process itself trusts for the API server, which
	// is followed too.
	RootCAFile string `json:"rootCAFile" check:"format=path"`
}

// RootCACertificatePublisherControllerSection describes RootCACertificatePublisherController.
func RootCACertificatePublisherControllerSection() SectionType {
	return SectionType{
		Name:    "root-ca-certificate-publisher-controller",
		Aliases: []string{"root-ca-cert-publisher"},
		New:     func() Section { return &RootCACertificatePublisherController{ControllerSettings: enabledByDefault(1)} },
	}
}

// ServiceAccountController configures serviceaccount-controller, which keeps the
// service account named default in every namespace.
type ServiceAccountController struct {
	ControllerSettings `json:",inline"`
}

// ServiceAccountControllerSection describes ServiceAccountController.
func ServiceAccountControllerSection() SectionType {
	return SectionType{
		Name:    "serviceaccount-controller",
		Aliases: []string{"serviceaccount"},
		New:     func() Section { return &ServiceAccountController{ControllerSettings: enabledByDefault(1)} },
	}
}

// ServiceAccountTokenController configures serviceaccount-token-controller, which
// fills and removes the token Secrets of service accounts. Workers is per queue,
// of which there are two. It has nothing to do unless KeyFile is set.
type ServiceAccountTokenController struct {
	ControllerSettings `json:",inline"`
	// KeyFile holds the RSA or ECDSA private key that signs the tokens, in PEM; the
	// file is followed while the process runs, and while it cannot be used the key of
	// before goes on signing. Default: empty, the controller is then not available.
	KeyFile string `json:"keyFile" check:"format=path"`
	// RootCAFile is the PEM bundle put in ca.crt of each token Secret; the file is
	// followed while the process runs, and another bundle gets into all of them.
	// Default: empty, the CA that the process itself trusts for the API server, which
	// is followed too; ca.crt is left as it is while there is none.
	RootCAFile string `json:"rootCAFile" check:"format=path"`
}

// ServiceAccountTokenControllerSection describes ServiceAccountTokenController.
func ServiceAccountTokenControllerSection() SectionType {
	return SectionType{
		Name:    "serviceaccount-token-controller",
		Aliases: []string{"serviceaccount-token"},
		New:     func() Section { return &ServiceAccountTokenController{ControllerSettings: enabledByDefault(5)} },
	}
}

// TokenCleanerController configures token-cleaner-controller, which deletes
// expired bootstrap tokens. Off by default.
type TokenCleanerController struct {
	ControllerSettings `json:",inline"`
}

// TokenCleanerControllerSection describes TokenCleanerController.
func TokenCleanerControllerSection() SectionType {
	return SectionType{
		Name:    "token-cleaner-controller",
		Aliases: []string{"tokencleaner"},
		New:     func() Section { return &TokenCleanerController{ControllerSettings: disabledByDefault()} },
	}
}
