package schema

import "slices"

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

const (
	allAlpha = "AllAlpha"
	allBeta  = "AllBeta"
)

// gates are those of Kubernetes 1.37 that concern a controller manager, sorted by name.
var gates = [...]FeatureGate{
	{"APIServerIdentity", Beta, true, false},
	{allAlpha, Alpha, false, false},
	{allBeta, Beta, false, false},
	{"AtomicFIFO", Beta, true, false},
	{"ClientsAllowCARotation", Beta, true, false},
	{"ClientsAllowCBOR", Alpha, false, false},
	{"ClientsAllowTLSCacheGC", Beta, true, false},
	{"ClientsPreferCBOR", Alpha, false, false},
	{"CloudControllerManagerWatchBasedRoutesReconciliation", Alpha, false, false},
	{"ClusterTrustBundle", GA, true, false},
	{"ComponentFlagz", Beta, true, false},
	{"ComponentStatusz", Beta, true, false},
	{"ContextualLogging", Beta, true, false},
	{"ControllerManagerReleaseLeaderElectionLockOnExit", Alpha, false, false},
	{"CoordinatedLeaderElection", Beta, false, false},
	{"DRAAdminAccess", GA, true, true},
	{"DRADeviceTaintRules", GA, true, false},
	{"DRADeviceTaints", GA, true, false},
	{"DRAExtendedResource", GA, true, true},
	{"DRAPrioritizedList", GA, true, true},
	{"DRAResourcePoolStatus", Alpha, false, false},
	{"DRAWorkloadResourceClaims", Beta, false, false},
	{"DeploymentReplicaSetTerminatingReplicas", Beta, true, false},
	{"DynamicResourceAllocation", GA, true, true},
	{"GenericWorkload", Beta, false, false},
	{"HPAConfigurableTolerance", GA, true, true},
	{"HPAGeneration", Beta, true, false},
	{"HPAOptimizedSelectorStore", Beta, true, false},
	{"HPAScaleToZero", Beta, true, false},
	{"InOrderInformers", GA, true, true},
	{"InOrderInformersBatchProcess", Beta, true, false},
	{"InPlacePodVerticalScaling", GA, true, true},
	{"InformerResourceVersion", GA, true, false},
	{"JobManagedBy", GA, true, true},
	{"LoggingAlphaOptions", Alpha, false, false},
	{"LoggingBetaOptions", Beta, true, false},
	{"MaxUnavailableStatefulSet", Beta, true, false},
	{"MultiCIDRServiceAllocator", GA, true, true},
	{"MutableSchedulingDirectivesForSuspendedJobs", Beta, true, false},
	{"NativeHistograms", Beta, true, false},
	{"NodeControllerLeaseCircuitBreaker", Beta, true, false},
	{"PersistentVolumeClaimUnusedSinceTime", Beta, true, false},
	{"PodCertificateRequest", GA, true, false},
	{"PodDeletionCost", Beta, true, false},
	{"PodLevelResources", Beta, true, false},
	{"PreferSameTrafficDistribution", GA, true, true},
	{"RecoverVolumeExpansionFailure", GA, true, true},
	{"RemoteRequestHeaderUID", Beta, true, false},
	{"SELinuxChangePolicy", GA, true, true},
	{"SeparateTaintEvictionController", GA, true, true},
	{"StaleControllerConsistencyDaemonSet", Beta, true, false},
	{"StaleControllerConsistencyHPA", Beta, true, false},
	{"StaleControllerConsistencyJob", Beta, true, false},
	{"StaleControllerConsistencyReplicaSet", Beta, true, false},
	{"StaleControllerConsistencyStatefulSet", Beta, true, false},
	{"StatefulSetRecreateStrategy", Alpha, false, false},
	{"StatefulSetSemanticRevisionComparison", Beta, true, false},
	{"StorageVersionAPI", Alpha, false, false},
	{"StorageVersionMigrator", GA, true, false},
	{"TaintTolerationComparisonOperators", Alpha, false, false},
	{"UnauthenticatedHTTP2DOSMitigation", Beta, true, false},
	{"UnlockWhileProcessingFIFO", Beta, true, false},
	{"VolumeAttributesClass", GA, true, true},
	{"WatchListClient", Beta, true, false},
	{"WorkloadWithJob", Alpha, false, false},
}

// FeatureGates returns the known gates with the defaults of Kubernetes 1.37, sorted by name.
func FeatureGates() []FeatureGate { return slices.Clone(gates[:]) }

func findGate(name string) (FeatureGate, bool) {
	for _, gate := range gates {
		if gate.Name == name {
			return gate, true
		}
	}
	return FeatureGate{}, false
}

// FeatureEnabled tells whether a gate is on: as it is set in the configuration,
// else as AllAlpha or AllBeta is set for gates of that stage, else by default. An
// unknown gate is off.
func FeatureEnabled(config *ControllerManagerConfiguration, name string) bool {
	if value, set := config.FeatureGates[name]; set {
		return value
	}
	gate, known := findGate(name)
	if !known {
		return false
	}
	group := ""
	switch gate.Stage {
	case Alpha:
		group = allAlpha
	case Beta:
		group = allBeta
	}
	if value, set := config.FeatureGates[group]; set && !gate.Locked {
		return value
	}
	return gate.Default
}
