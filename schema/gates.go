package schema

// Stage of a feature gate.
type Stage string

// The stages of feature gates.
const (
	Alpha Stage = "ALPHA"
	Beta  Stage = "BETA"
	GA    Stage = "GA"
)

// FeatureGate is a feature gate that the engine or a controller knows.
type FeatureGate struct {
	Name    string
	Stage   Stage
	Default bool
	// Locked gates may only be set to their default.
	Locked bool
}

// FeatureGates returns the known gates with the defaults of Kubernetes 1.37.
func FeatureGates() []FeatureGate {
	gates := []FeatureGate{
		{Name: allAlpha, Stage: Alpha},
		{Name: allBeta, Stage: Beta},
	}
	add := func(stage Stage, on, locked bool, names ...string) {
		for _, name := range names {
			gates = append(gates, FeatureGate{Name: name, Stage: stage, Default: on, Locked: locked})
		}
	}
	add(Alpha, false, false,
		"ClientsAllowCBOR",
		"ClientsPreferCBOR",
		"ControllerManagerReleaseLeaderElectionLockOnExit",
		"CloudControllerManagerWatchBasedRoutesReconciliation",
		"DRAResourcePoolStatus",
		"LoggingAlphaOptions",
		"StatefulSetRecreateStrategy",
		"StorageVersionAPI",
		"TaintTolerationComparisonOperators",
		"WorkloadWithJob",
	)
	add(Beta, false, false,
		"CoordinatedLeaderElection",
		"DRAWorkloadResourceClaims",
		"GenericWorkload",
	)
	add(Beta, true, false,
		"APIServerIdentity",
		"AtomicFIFO",
		"ClientsAllowCARotation",
		"ClientsAllowTLSCacheGC",
		"ComponentFlagz",
		"ComponentStatusz",
		"ContextualLogging",
		"DeploymentReplicaSetTerminatingReplicas",
		"HPAGeneration",
		"HPAOptimizedSelectorStore",
		"HPAScaleToZero",
		"InOrderInformersBatchProcess",
		"LoggingBetaOptions",
		"MaxUnavailableStatefulSet",
		"MutableSchedulingDirectivesForSuspendedJobs",
		"NativeHistograms",
		"NodeControllerLeaseCircuitBreaker",
		"PersistentVolumeClaimUnusedSinceTime",
		"PodDeletionCost",
		"PodLevelResources",
		"RemoteRequestHeaderUID",
		"StaleControllerConsistencyDaemonSet",
		"StaleControllerConsistencyHPA",
		"StaleControllerConsistencyJob",
		"StaleControllerConsistencyReplicaSet",
		"StaleControllerConsistencyStatefulSet",
		"StatefulSetSemanticRevisionComparison",
		"UnauthenticatedHTTP2DOSMitigation",
		"UnlockWhileProcessingFIFO",
		"WatchListClient",
	)
	add(GA, true, false,
		"ClusterTrustBundle",
		"DRADeviceTaintRules",
		"DRADeviceTaints",
		"InformerResourceVersion",
		"PodCertificateRequest",
		"StorageVersionMigrator",
	)
	add(GA, true, true,
		"DRAAdminAccess",
		"DRAExtendedResource",
		"DRAPrioritizedList",
		"DynamicResourceAllocation",
		"HPAConfigurableTolerance",
		"InOrderInformers",
		"InPlacePodVerticalScaling",
		"JobManagedBy",
		"MultiCIDRServiceAllocator",
		"PreferSameTrafficDistribution",
		"RecoverVolumeExpansionFailure",
		"SELinuxChangePolicy",
		"SeparateTaintEvictionController",
		"VolumeAttributesClass",
	)
	return gates
}

const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// FeatureEnabled tells whether a gate is on: as it is set in the configuration,
// else as AllAlpha or AllBeta is set for gates of that stage, else by default. An
// unknown gate is off.
func FeatureEnabled(config *ControllerManagerConfiguration, gate string) bool {
	if value, set := config.FeatureGates[gate]; set {
		return value
	}
	for _, known := range FeatureGates() {
		if known.Name != gate {
			continue
		}
		group := map[Stage]string{Alpha: allAlpha, Beta: allBeta}[known.Stage]
		if value, set := config.FeatureGates[group]; set && !known.Locked {
			return value
		}
		return known.Default
	}
	return false
}
