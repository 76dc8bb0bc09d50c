package schema

import "time"

// defaults returns the configuration of the engine; sections come from the Scheme.
func defaults() *ControllerManagerConfiguration {
	return &ControllerManagerConfiguration{
		TypeMeta: typeMeta(),
		Cluster: Cluster{
			Name:                         "kubernetes",
			UseServiceAccountCredentials: true,
			Client:                       Client{ContentType: "application/vnd.kubernetes.protobuf"},
			ClusterCIDRs:                 []string{},
			ServiceCIDRs:                 []string{},
		},
		LeaderElection: LeaderElection{
			Enabled:           true,
			LeaseDuration:     duration(15 * time.Second),
			RenewDeadline:     duration(10 * time.Second),
			RetryPeriod:       duration(2 * time.Second),
			ResourceName:      "kube-controller-manager",
			ResourceNamespace: "kube-system",
			Standby:           StandbyWarm,
			ReleaseOnExit:     true,
		},
		Server: Server{
			BindAddress:   "0.0.0.0",
			Port:          10257,
			TLS:           ServerTLS{MinVersion: "VersionTLS12", CipherSuites: []string{}},
			Authorization: Authorization{AlwaysAllowPaths: []string{"/healthz", "/readyz", "/livez"}},
			Profiling:     true,
		},
		Logging: Logging{Format: "auto", Modules: map[string]int{}},
		Reload: Reload{
			Debounce:     duration(100 * time.Millisecond),
			PollInterval: duration(10 * time.Second),
			DrainTimeout: duration(30 * time.Second),
		},
		FeatureGates: map[string]bool{},
	}
}
