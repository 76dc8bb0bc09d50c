package schema

// setting is one flag or field of kube-controller-manager and what becomes of it.
type setting struct {
	// flag is empty for a field without one, field for a flag without one.
	// Field is its path in KubeControllerManagerConfiguration.
	flag, field string
	kind        kind
	// def is the peer's default as a flag would spell it; values like it need no mention.
	def string
	// to are the paths here that take the value as it is.
	to []string
	// carry takes the value otherwise.
	carry func(c *conversion, g given)
	// zeroCounts in a configuration file; a zero elsewhere means the default there.
	zeroCounts bool
	// why the value is not carried over, and what to do instead.
	why string
	// refuse makes it an error in a configuration file.
	refuse bool
}

// id names a setting in messages.
func (s setting) id() string {
	if s.flag != "" {
		return "--" + s.flag
	}
	return s.field
}

const noEffect = "has no effect in kube-controller-manager either"

// peerSettings are all flags of kube-controller-manager 1.37 and all fields of
// its configuration API.
func peerSettings() []setting {
	settings := append(processSettings(), serverSettings()...)
	return append(settings, controllerSettings()...)
}

func processSettings() []setting {
	const election = "Generic.LeaderElection."
	return []setting{
		{flag: "kubeconfig", field: "Generic.ClientConnection.kubeconfig", to: []string{"cluster.kubeconfig"}},
		{flag: "master", why: "put the API server's address into the file that cluster.kubeconfig names"},
		{flag: "kube-api-qps", field: "Generic.ClientConnection.qps", kind: number, def: "20", carry: carryQPS},
		{flag: "kube-api-burst", field: "Generic.ClientConnection.burst", kind: integer, def: "30", carry: carryBurst},
		{flag: "kube-api-content-type", field: "Generic.ClientConnection.contentType", carry: carryNonEmpty("cluster.client.contentType")},
		{field: "Generic.ClientConnection.acceptContentTypes", why: "what is accepted follows from cluster.client.contentType"},
		{flag: "use-service-account-credentials", field: "KubeCloudShared.UseServiceAccountCredentials", kind: boolean,
			to: []string{"cluster.useServiceAccountCredentials"}},
		{flag: "cluster-name", field: "KubeCloudShared.ClusterName", carry: carryNonEmpty("cluster.name")},
		{flag: "allocate-node-cidrs", field: "KubeCloudShared.AllocateNodeCIDRs", kind: boolean, to: []string{"cluster.allocateNodeCIDRs"}},
		{flag: "cluster-cidr", field: "KubeCloudShared.ClusterCIDR", carry: carryRanges("cluster.clusterCIDRs")},
		{flag: "service-cluster-ip-range", field: "NodeIPAMController.ServiceCIDR", carry: carryServiceRanges},
		{field: "NodeIPAMController.SecondaryServiceCIDR", carry: carryServiceRanges},
		{flag: "cloud-provider", field: "KubeCloudShared.CloudProvider.Name", to: []string{"cluster.cloudProvider.name"}},
		{flag: "cloud-config", field: "KubeCloudShared.CloudProvider.CloudConfigFile", to: []string{"cluster.cloudProvider.configFile"}},
		{flag: "allow-untagged-cloud", field: "KubeCloudShared.AllowUntaggedCloud", kind: boolean,
			to: []string{"cluster.cloudProvider.allowUntagged"}},
		{flag: "configure-cloud-routes", field: "KubeCloudShared.ConfigureCloudRoutes", kind: boolean, def: "true",
			carry: func(*conversion, given) {}}, // read when the controllers are carried
		{flag: "route-reconciliation-period", field: "KubeCloudShared.RouteReconciliationPeriod", kind: period,
			to: []string{"controllers.node-route-controller.reconciliationPeriod"}},
		{flag: "external-cloud-volume-plugin", field: "KubeCloudShared.ExternalCloudVolumePlugin", why: noEffect},
		{flag: "node-sync-period", field: "KubeCloudShared.NodeSyncPeriod", kind: period, def: "0s", why: noEffect},

		{flag: "leader-elect", field: election + "leaderElect", kind: boolean, to: []string{"leaderElection.enabled"}},
		{flag: "leader-elect-lease-duration", field: election + "leaseDuration", kind: period, to: []string{"leaderElection.leaseDuration"}},
		{flag: "leader-elect-renew-deadline", field: election + "renewDeadline", kind: period, to: []string{"leaderElection.renewDeadline"}},
		{flag: "leader-elect-retry-period", field: election + "retryPeriod", kind: period, to: []string{"leaderElection.retryPeriod"}},
		{flag: "leader-elect-resource-lock", field: election + "resourceLock", def: "leases", refuse: true,
			why: "only Leases are used as locks; a process that holds another kind of lock would not be noticed"},
		{flag: "leader-elect-resource-name", field: election + "resourceName", carry: carryNonEmpty("leaderElection.resourceName")},
		{flag: "leader-elect-resource-namespace", field: election + "resourceNamespace",
			carry: carryNonEmpty("leaderElection.resourceNamespace")},
		{flag: "enable-leader-migration", field: "Generic.LeaderMigrationEnabled", kind: boolean, def: "false", refuse: true,
			why: "leader migration is not offered; finish the migration with kube-controller-manager first"},
		{flag: "leader-migration-config", why: "leader migration is not offered"},
		{field: "Generic.LeaderMigration.leaderName", why: "leader migration is not offered"},
		{field: "Generic.LeaderMigration.resourceLock", why: "leader migration is not offered"},
		{field: "Generic.LeaderMigration.controllerLeaders", kind: list, why: "leader migration is not offered"},

		{flag: "controllers", field: "Generic.Controllers", kind: list, carry: func(*conversion, given) {}}, // carried in any case
		{flag: "controller-start-interval", field: "Generic.ControllerStartInterval", kind: period, to: []string{"controllers.startInterval"}},
		{flag: "controller-shutdown-timeout", kind: period, def: "10s", carry: carryShutdown},
		{flag: "min-resync-period", field: "Generic.MinResyncPeriod", kind: period, def: "12h",
			why: "informers are not resynced; controllers that look at everything from time to time have a period of their own"},
		{flag: "feature-gates", kind: list, carry: carryFeatureGates},
		{flag: "emulated-version", kind: list, why: "no earlier version is emulated; set single featureGates instead"},
		{flag: "min-compatibility-version", kind: list, why: "no earlier version is emulated"},

		{flag: "logging-format", carry: carryNonEmpty("logging.format")},
		{flag: "v", kind: integer, def: "0", carry: carryVerbosity},
		{flag: "vmodule", why: "set logging.modules, by controller instead of by source file"},
		{flag: "log-flush-frequency", kind: period, def: "5s", why: "the log is not buffered"},
		{flag: "log-text-split-stream", kind: boolean, def: "false", why: "the whole log goes to standard error"},
		{flag: "log-json-split-stream", kind: boolean, def: "false", why: "the whole log goes to standard error"},
		{flag: "log-text-info-buffer-size", def: "0", why: "the log is not buffered"},
		{flag: "log-json-info-buffer-size", def: "0", why: "the log is not buffered"},
		{flag: "version", kind: boolean, def: "false", why: "kube-controller-manager would print its version and exit"},
		{flag: "help", kind: boolean, def: "false", why: "kube-controller-manager would print its flags and exit"},
	}
}

func serverSettings() []setting {
	const (
		published = "read from the ConfigMap kube-system/extension-apiserver-authentication, where the API server publishes it"
		fixed     = "not adjustable"
	)
	return []setting{
		{field: "Generic.Port", kind: integer, def: "0", why: noEffect},
		{field: "Generic.Address", def: "0.0.0.0", why: noEffect},
		{flag: "bind-address", carry: carryNonEmpty("server.bindAddress")},
		{flag: "secure-port", kind: integer, to: []string{"server.port"}},
		{flag: "profiling", field: "Generic.Debugging.enableProfiling", kind: boolean, to: []string{"server.profiling"}},
		{flag: "contention-profiling", field: "Generic.Debugging.enableContentionProfiling", kind: boolean, def: "false",
			why: "block profiling is not offered"},
		{flag: "tls-cert-file", to: []string{"server.tls.certFile"}},
		{flag: "tls-private-key-file", to: []string{"server.tls.keyFile"}},
		{flag: "cert-dir", carry: carryCertDir},
		{flag: "client-ca-file", to: []string{"server.tls.clientCAFile"}},
		{flag: "tls-min-version", carry: carryTLSVersion},
		{flag: "tls-cipher-suites", kind: list, carry: carryCipherSuites},
		{flag: "tls-curve-preferences", kind: list, why: fixed + "; Go's preferences hold"},
		{flag: "tls-sni-cert-key", kind: list, why: "only one serving certificate is offered; give it all names"},
		{flag: "http2-max-streams-per-connection", kind: integer, def: "0", why: fixed},
		{flag: "disable-http2-serving", kind: boolean, def: "false", why: "HTTP/2 is always served"},
		{flag: "permit-address-sharing", kind: boolean, def: "false", why: "a new listener is opened before the old one drains, without sharing"},
		{flag: "permit-port-sharing", kind: boolean, def: "false", why: "a new listener is opened before the old one drains, without sharing"},
		{flag: "authentication-kubeconfig", carry: carryDelegated},
		{flag: "authorization-kubeconfig", carry: carryDelegated},
		{flag: "authentication-skip-lookup", kind: boolean, def: "false", why: "set server.tls.clientCAFile; the lookup does not hold up the start"},
		{flag: "authentication-tolerate-lookup-failure", kind: boolean, def: "false",
			why: "a failing lookup never ends the process; it is repeated"},
		{flag: "authentication-token-webhook-cache-ttl", kind: period, def: "10s", why: fixed},
		{flag: "authorization-webhook-cache-authorized-ttl", kind: period, def: "10s", why: fixed},
		{flag: "authorization-webhook-cache-unauthorized-ttl", kind: period, def: "10s", why: fixed},
		{flag: "authorization-always-allow-paths", kind: list, to: []string{"server.authorization.alwaysAllowPaths"}},
		{flag: "requestheader-client-ca-file", why: published},
		{flag: "requestheader-allowed-names", kind: list, why: published},
		{flag: "requestheader-username-headers", kind: list, def: "x-remote-user", why: published},
		{flag: "requestheader-group-headers", kind: list, def: "x-remote-group", why: published},
		{flag: "requestheader-extra-headers-prefix", kind: list, def: "x-remote-extra-", why: published},
		{flag: "requestheader-uid-headers", kind: list, why: published},
		{flag: "show-hidden-metrics-for-version", why: "no metric is hidden"},
		{flag: "disabled-metrics", kind: list, why: "drop the metrics in the scrape configuration"},
		{flag: "allow-metric-labels", kind: list, why: "drop the labels in the scrape configuration"},
		{flag: "allow-metric-labels-manifest", why: "drop the labels in the scrape configuration"},
	}
}

func controllerSettings() []setting {
	const (
		signing   = "controllers.certificatesigningrequest-signing-controller."
		signField = "CSRSigningController."
		hpa       = "controllers.horizontal-pod-autoscaler-controller."
		hpaField  = "HPAController.HorizontalPodAutoscaler"
		node      = "controllers.node-lifecycle-controller."
		nodeField = "NodeLifecycleController."
		ipam      = "controllers.node-ipam-controller."
		binder    = "controllers.persistentvolume-binder-controller."
		volumes   = "PersistentVolumeBinderController.VolumeConfiguration."
		recycler  = volumes + "PersistentVolumeRecyclerConfiguration."
		attach    = "controllers.persistentvolume-attach-detach-controller."
	)
	value := func(k kind, flag, field string, to ...string) setting {
		return setting{flag: flag, field: field, kind: k, to: to}
	}
	return []setting{
		workers("concurrent-cron-job-syncs", "CronJobController.ConcurrentCronJobSyncs", "5", "cronjob-controller"),
		workers("concurrent-daemonset-syncs", "DaemonSetController.ConcurrentDaemonSetSyncs", "2", "daemonset-controller"),
		workers("concurrent-deployment-syncs", "DeploymentController.ConcurrentDeploymentSyncs", "5", "deployment-controller"),
		workers("concurrent-device-taint-eviction-syncs", "DeviceTaintEvictionController.ConcurrentSyncs", "8",
			"device-taint-eviction-controller"),
		workers("concurrent-disruption-syncs", "DisruptionController.ConcurrentDisruptionSyncs", "1", "disruption-controller"),
		workers("concurrent-endpoint-syncs", "EndpointController.ConcurrentEndpointSyncs", "5", "endpoints-controller"),
		workers("concurrent-service-endpoint-syncs", "EndpointSliceController.ConcurrentServiceEndpointSyncs", "5",
			"endpointslice-controller"),
		workers("mirroring-concurrent-service-endpoint-syncs",
			"EndpointSliceMirroringController.MirroringConcurrentServiceEndpointSyncs", "5", "endpointslice-mirroring-controller"),
		workers("concurrent-ephemeralvolume-syncs", "EphemeralVolumeController.ConcurrentEphemeralVolumeSyncs", "5",
			"ephemeral-volume-controller"),
		workers("concurrent-gc-syncs", "GarbageCollectorController.ConcurrentGCSyncs", "20", "garbage-collector-controller"),
		workers("concurrent-horizontal-pod-autoscaler-syncs", "HPAController.ConcurrentHorizontalPodAutoscalerSyncs", "5",
			"horizontal-pod-autoscaler-controller"),
		workers("concurrent-job-syncs", "JobController.ConcurrentJobSyncs", "5", "job-controller"),
		workers("concurrent-namespace-syncs", "NamespaceController.ConcurrentNamespaceSyncs", "10", "namespace-controller"),
		workers("concurrent-replicaset-syncs", "ReplicaSetController.ConcurrentRSSyncs", "5", "replicaset-controller"),
		workers("concurrent-rc-syncs", "ReplicationController.ConcurrentRCSyncs", "5", "replicationcontroller-controller"),
		workers("concurrent-resourceclaim-syncs", "ResourceClaimController.ConcurrentSyncs", "50", "resourceclaim-controller"),
		workers("concurrent-resource-quota-syncs", "ResourceQuotaController.ConcurrentResourceQuotaSyncs", "5",
			"resourcequota-controller"),
		workers("concurrent-serviceaccount-token-syncs", "SAController.ConcurrentSATokenSyncs", "5", "serviceaccount-token-controller"),
		workers("concurrent-statefulset-syncs", "StatefulSetController.ConcurrentStatefulSetSyncs", "5", "statefulset-controller"),
		workers("concurrent-ttl-after-finished-syncs", "TTLAfterFinishedController.ConcurrentTTLSyncs", "5",
			"ttl-after-finished-controller"),
		workers("concurrent-validating-admission-policy-status-syncs",
			"ValidatingAdmissionPolicyStatusController.ConcurrentPolicySyncs", "5", "validatingadmissionpolicy-status-controller"),
		workers("concurrent-service-syncs", "ServiceController.ConcurrentServiceSyncs", "1", "service-lb-controller"),

		{flag: "cluster-signing-cert-file", field: signField + "ClusterSigningCertFile", carry: carrySigningPair},
		{flag: "cluster-signing-key-file", field: signField + "ClusterSigningKeyFile", carry: carrySigningPair},
		value(text, "cluster-signing-kubelet-serving-cert-file", signField+"KubeletServingSignerConfiguration.CertFile",
			signing+"kubeletServing.certFile"),
		value(text, "cluster-signing-kubelet-serving-key-file", signField+"KubeletServingSignerConfiguration.KeyFile",
			signing+"kubeletServing.keyFile"),
		value(text, "cluster-signing-kubelet-client-cert-file", signField+"KubeletClientSignerConfiguration.CertFile",
			signing+"kubeletClient.certFile"),
		value(text, "cluster-signing-kubelet-client-key-file", signField+"KubeletClientSignerConfiguration.KeyFile",
			signing+"kubeletClient.keyFile"),
		value(text, "cluster-signing-kube-apiserver-client-cert-file", signField+"KubeAPIServerClientSignerConfiguration.CertFile",
			signing+"kubeAPIServerClient.certFile"),
		value(text, "cluster-signing-kube-apiserver-client-key-file", signField+"KubeAPIServerClientSignerConfiguration.KeyFile",
			signing+"kubeAPIServerClient.keyFile"),
		value(text, "cluster-signing-legacy-unknown-cert-file", signField+"LegacyUnknownSignerConfiguration.CertFile",
			signing+"legacyUnknown.certFile"),
		value(text, "cluster-signing-legacy-unknown-key-file", signField+"LegacyUnknownSignerConfiguration.KeyFile",
			signing+"legacyUnknown.keyFile"),
		value(period, "cluster-signing-duration", signField+"ClusterSigningDuration", signing+"duration"),

		value(period, "endpoint-updates-batch-period", "EndpointController.EndpointUpdatesBatchPeriod",
			"controllers.endpoints-controller.endpointUpdatesBatchPeriod"),
		value(period, "endpointslice-updates-batch-period", "EndpointSliceController.EndpointUpdatesBatchPeriod",
			"controllers.endpointslice-controller.endpointUpdatesBatchPeriod"),
		value(integer, "max-endpoints-per-slice", "EndpointSliceController.MaxEndpointsPerSlice",
			"controllers.endpointslice-controller.maxEndpointsPerSlice"),
		value(period, "mirroring-endpointslice-updates-batch-period",
			"EndpointSliceMirroringController.MirroringEndpointUpdatesBatchPeriod",
			"controllers.endpointslice-mirroring-controller.endpointUpdatesBatchPeriod"),
		value(integer, "mirroring-max-endpoints-per-subset", "EndpointSliceMirroringController.MirroringMaxEndpointsPerSubset",
			"controllers.endpointslice-mirroring-controller.maxEndpointsPerSubset"),

		{flag: "enable-garbage-collector", field: "GarbageCollectorController.EnableGarbageCollector", kind: boolean, def: "true",
			carry: func(*conversion, given) {}}, // read when the controllers are carried
		{field: "GarbageCollectorController.GCIgnoredResources", kind: list, carry: carryIgnoredResources},

		value(period, "horizontal-pod-autoscaler-cpu-initialization-period", hpaField+"CPUInitializationPeriod",
			hpa+"cpuInitializationPeriod"),
		value(period, "horizontal-pod-autoscaler-downscale-stabilization", hpaField+"DownscaleStabilizationWindow",
			hpa+"downscaleStabilizationWindow"),
		value(period, "horizontal-pod-autoscaler-initial-readiness-delay", hpaField+"InitialReadinessDelay",
			hpa+"initialReadinessDelay"),
		value(period, "horizontal-pod-autoscaler-sync-period", hpaField+"SyncPeriod", hpa+"syncPeriod"),
		value(number, "horizontal-pod-autoscaler-tolerance", hpaField+"Tolerance", hpa+"tolerance"),

		value(period, "legacy-service-account-token-clean-up-period", "LegacySATokenCleaner.CleanUpPeriod",
			"controllers.legacy-serviceaccount-token-cleaner-controller.cleanUpPeriod"),
		value(period, "namespace-sync-period", "NamespaceController.NamespaceSyncPeriod", "controllers.namespace-controller.syncPeriod"),
		{flag: "resource-quota-sync-period", field: "ResourceQuotaController.ResourceQuotaSyncPeriod", kind: period,
			carry: carryQuotaPeriod},
		{flag: "terminated-pod-gc-threshold", field: "PodGCController.TerminatedPodGCThreshold", kind: integer,
			carry: carryPodThreshold},

		{flag: "cidr-allocator-type", field: "KubeCloudShared.CIDRAllocatorType", carry: carryNonEmpty(ipam + "cidrAllocatorType")},
		value(integer, "node-cidr-mask-size", "NodeIPAMController.NodeCIDRMaskSize", ipam+"nodeCIDRMaskSize"),
		value(integer, "node-cidr-mask-size-ipv4", "NodeIPAMController.NodeCIDRMaskSizeIPv4", ipam+"nodeCIDRMaskSizeIPv4"),
		value(integer, "node-cidr-mask-size-ipv6", "NodeIPAMController.NodeCIDRMaskSizeIPv6", ipam+"nodeCIDRMaskSizeIPv6"),
		rate(integer, "large-cluster-size-threshold", nodeField+"LargeClusterSizeThreshold", node+"largeClusterSizeThreshold"),
		rate(number, "node-eviction-rate", nodeField+"NodeEvictionRate", node+"nodeEvictionRate"),
		rate(number, "secondary-node-eviction-rate", nodeField+"SecondaryNodeEvictionRate", node+"secondaryNodeEvictionRate"),
		rate(number, "unhealthy-zone-threshold", nodeField+"UnhealthyZoneThreshold", node+"unhealthyZoneThreshold"),
		value(period, "node-monitor-grace-period", nodeField+"NodeMonitorGracePeriod", node+"nodeMonitorGracePeriod"),
		value(period, "node-startup-grace-period", nodeField+"NodeStartupGracePeriod", node+"nodeStartupGracePeriod"),
		value(period, "node-monitor-period", nodeField+"NodeMonitorPeriod", node+"nodeMonitorPeriod",
			"controllers.cloud-node-lifecycle-controller.nodeMonitorPeriod"),
		{field: nodeField + "PodEvictionTimeout", kind: period, def: "0s", why: noEffect},

		value(period, "attach-detach-reconcile-sync-period", "AttachDetachController.ReconcilerSyncLoopPeriod",
			attach+"reconcilerSyncPeriod"),
		value(boolean, "disable-attach-detach-reconcile-sync", "AttachDetachController.DisableAttachDetachReconcilerSync",
			attach+"disableReconcilerSync"),
		value(boolean, "disable-force-detach-on-timeout", "AttachDetachController.disableForceDetachOnTimeout",
			attach+"disableForceDetachOnTimeout"),
		value(text, "flex-volume-plugin-dir", volumes+"FlexVolumePluginDir", attach+"flexVolumePluginDir"),
		value(boolean, "enable-dynamic-provisioning", volumes+"EnableDynamicProvisioning", binder+"enableDynamicProvisioning"),
		value(boolean, "enable-hostpath-provisioner", volumes+"EnableHostPathProvisioning", binder+"enableHostPathProvisioning"),
		value(period, "pvclaimbinder-sync-period", "PersistentVolumeBinderController.PVClaimBinderSyncPeriod", binder+"syncPeriod"),
		seconds("pv-recycler-minimum-timeout-nfs", recycler+"MinimumTimeoutNFS", binder+"recycler.nfs.minimumTimeout"),
		seconds("pv-recycler-increment-timeout-nfs", recycler+"IncrementTimeoutNFS", binder+"recycler.nfs.timeoutIncrement"),
		seconds("pv-recycler-minimum-timeout-hostpath", recycler+"MinimumTimeoutHostPath", binder+"recycler.hostPath.minimumTimeout"),
		seconds("pv-recycler-timeout-increment-hostpath", recycler+"IncrementTimeoutHostPath",
			binder+"recycler.hostPath.timeoutIncrement"),
		value(text, "pv-recycler-pod-template-filepath-nfs", recycler+"PodTemplateFilePathNFS", binder+"recycler.nfs.podTemplateFile"),
		value(text, "pv-recycler-pod-template-filepath-hostpath", recycler+"PodTemplateFilePathHostPath",
			binder+"recycler.hostPath.podTemplateFile"),
		{field: recycler + "MaximumRetry", kind: integer, def: "3", why: noEffect},

		value(text, "service-account-private-key-file", "SAController.ServiceAccountKeyFile",
			"controllers.serviceaccount-token-controller.keyFile"),
		value(text, "root-ca-file", "SAController.RootCAFile",
			"controllers.serviceaccount-token-controller.rootCAFile",
			"controllers.root-ca-certificate-publisher-controller.rootCAFile",
			"controllers.kube-apiserver-serving-clustertrustbundle-publisher-controller.rootCAFile"),
	}
}

// workers are the peer's concurrent…syncs.
func workers(flag, field, def, controller string) setting {
	return setting{flag: flag, field: field, kind: integer, def: def, carry: carryWorkers(controller)}
}

// rate is a value of node-lifecycle-controller whose zero means what it says.
func rate(k kind, flag, field, to string) setting {
	return setting{flag: flag, field: field, kind: k, to: []string{to}, zeroCounts: true}
}

// seconds are durations that the peer counts as integers.
func seconds(flag, field, to string) setting {
	return setting{flag: flag, field: field, kind: integer, carry: carrySeconds(to)}
}

// removedFlag was a flag of kube-controller-manager 1.25 and is none of 1.37.
type removedFlag struct {
	flag    string
	version string
	boolean bool
	remedy  string
}

// removedFlags leaves out concurrent-service-syncs, whose value is still carried.
func removedFlags() []removedFlag {
	const (
		standardError = "the log goes to standard error, redirect it"
		remove        = "remove it"
	)
	return []removedFlag{
		{"log-dir", "1.26", false, standardError},
		{"log-file", "1.26", false, standardError},
		{"log-file-max-size", "1.26", false, standardError},
		{"logtostderr", "1.26", true, remove},
		{"alsologtostderr", "1.26", true, remove},
		{"stderrthreshold", "1.26", false, remove},
		{"one-output", "1.26", true, remove},
		{"skip-headers", "1.26", true, "set logging.format"},
		{"skip-log-headers", "1.26", true, "set logging.format"},
		{"add-dir-header", "1.26", true, "set logging.format"},
		{"log-backtrace-at", "1.26", false, remove},
		{"pod-eviction-timeout", "1.27", false, "pods say by their tolerations how long they stay on a node that is not ready"},
		{"enable-taint-manager", "1.27", true, "set controllers.taint-eviction-controller.enabled"},
		{"horizontal-pod-autoscaler-upscale-delay", "1.31", false, "set spec.behavior.scaleUp of the autoscalers concerned"},
		{"horizontal-pod-autoscaler-downscale-delay", "1.31", false,
			"set controllers.horizontal-pod-autoscaler-controller.downscaleStabilizationWindow"},
		{"volume-host-cidr-denylist", "1.31", false, remove},
		{"volume-host-allow-local-loopback", "1.31", true, remove},
	}
}
