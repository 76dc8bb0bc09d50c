package schema

// sections returns the section of every controller that kube-controller-manager
// 1.25 or 1.37 knows.
func sections() []SectionType {
	return []SectionType{
		BootstrapSignerControllerSection(),
		CertificateSigningRequestApprovingControllerSection(),
		CertificateSigningRequestCleanerControllerSection(),
		CertificateSigningRequestSigningControllerSection(),
		CloudNodeLifecycleControllerSection(),
		ClusterRoleAggregationControllerSection(),
		CronJobControllerSection(),
		DaemonSetControllerSection(),
		DeploymentControllerSection(),
		DeviceTaintEvictionControllerSection(),
		DisruptionControllerSection(),
		EndpointsControllerSection(),
		EndpointSliceControllerSection(),
		EndpointSliceMirroringControllerSection(),
		EphemeralVolumeControllerSection(),
		GarbageCollectorControllerSection(),
		HorizontalPodAutoscalerControllerSection(),
		JobControllerSection(),
		KubeAPIServerServingClusterTrustBundlePublisherControllerSection(),
		LegacyServiceAccountTokenCleanerControllerSection(),
		NamespaceControllerSection(),
		NodeIPAMControllerSection(),
		NodeLifecycleControllerSection(),
		NodeRouteControllerSection(),
		PersistentVolumeAttachDetachControllerSection(),
		PersistentVolumeBinderControllerSection(),
		PersistentVolumeExpanderControllerSection(),
		PersistentVolumeProtectionControllerSection(),
		PersistentVolumeClaimProtectionControllerSection(),
		PodGarbageCollectorControllerSection(),
		PodCertificateRequestCleanerControllerSection(),
		PodGroupProtectionControllerSection(),
		ReplicaSetControllerSection(),
		ReplicationControllerControllerSection(),
		ResourceClaimControllerSection(),
		ResourcePoolStatusRequestControllerSection(),
		ResourceQuotaControllerSection(),
		RootCACertificatePublisherControllerSection(),
		SELinuxWarningControllerSection(),
		ServiceAccountControllerSection(),
		ServiceAccountTokenControllerSection(),
		ServiceCIDRControllerSection(),
		ServiceLBControllerSection(),
		StatefulSetControllerSection(),
		StorageVersionGarbageCollectorControllerSection(),
		StorageVersionMigratorControllerSection(),
		TaintEvictionControllerSection(),
		TokenCleanerControllerSection(),
		TTLAfterFinishedControllerSection(),
		TTLControllerSection(),
		ValidatingAdmissionPolicyStatusControllerSection(),
		VolumeAttributesClassProtectionControllerSection(),
	}
}

// enabledByDefault and disabledByDefault are the common fields of a controller that runs, or does not run,
// unless the configuration says otherwise.
func enabledByDefault(workers int) ControllerSettings {
	return ControllerSettings{Enabled: true, Workers: workers}
}
func disabledByDefault() ControllerSettings { return ControllerSettings{Enabled: false, Workers: 1} }
