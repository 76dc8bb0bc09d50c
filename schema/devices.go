package schema

// DeviceTaintEvictionController configures device-taint-eviction-controller,
// which deletes pods that do not tolerate a NoExecute taint of their devices.
type DeviceTaintEvictionController struct {
	ControllerSettings `json:",inline"`
}

// DeviceTaintEvictionControllerSection describes DeviceTaintEvictionController.
func DeviceTaintEvictionControllerSection() SectionType {
	return SectionType{
		Name: "device-taint-eviction-controller",
		New:  func() Section { return &DeviceTaintEvictionController{ControllerSettings: enabledByDefault(8)} },
	}
}

// ResourceClaimController configures resourceclaim-controller, which creates
// ResourceClaims from templates and keeps who uses them.
type ResourceClaimController struct {
	ControllerSettings `json:",inline"`
}

// ResourceClaimControllerSection describes ResourceClaimController.
func ResourceClaimControllerSection() SectionType {
	return SectionType{
		Name:    "resourceclaim-controller",
		Aliases: []string{"resource-claim-controller"},
		New:     func() Section { return &ResourceClaimController{ControllerSettings: enabledByDefault(50)} },
	}
}

// ResourcePoolStatusRequestController configures
// resourcepoolstatusrequest-controller, which answers questions about device pools.
type ResourcePoolStatusRequestController struct {
	ControllerSettings `json:",inline"`
}

// ResourcePoolStatusRequestControllerSection describes ResourcePoolStatusRequestController.
func ResourcePoolStatusRequestControllerSection() SectionType {
	return SectionType{
		Name: "resourcepoolstatusrequest-controller",
		New:  func() Section { return &ResourcePoolStatusRequestController{ControllerSettings: enabledByDefault(1)} },
	}
}
