package schema

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndpointsController configures endpoints-controller, which keeps the Endpoints
// of Services.
type EndpointsController struct {
	ControllerSettings `json:",inline"`
	// EndpointUpdatesBatchPeriod is how long changes of pods are gathered before
	// Endpoints are written. Default: 0s.
	EndpointUpdatesBatchPeriod metav1.Duration `json:"endpointUpdatesBatchPeriod" check:"min=0s,max=1h"`
}

// EndpointsControllerSection describes EndpointsController.
func EndpointsControllerSection() SectionType {
	return SectionType{
		Name:    "endpoints-controller",
		Aliases: []string{"endpoint"},
		New:     func() Section { return &EndpointsController{ControllerSettings: enabledByDefault(5)} },
	}
}

// EndpointSliceController configures endpointslice-controller, which keeps the
// EndpointSlices of Services.
type EndpointSliceController struct {
	ControllerSettings `json:",inline"`
	// MaxEndpointsPerSlice is the most endpoints added to one slice. Default: 100.
	MaxEndpointsPerSlice int `json:"maxEndpointsPerSlice" check:"min=1,max=1000"`
	// EndpointUpdatesBatchPeriod is how long changes of pods are gathered before
	// slices are written. Default: 0s.
	EndpointUpdatesBatchPeriod metav1.Duration `json:"endpointUpdatesBatchPeriod" check:"min=0s,max=1h"`
}

// EndpointSliceControllerSection describes EndpointSliceController.
func EndpointSliceControllerSection() SectionType {
	return SectionType{
		Name:       "endpointslice-controller",
		Aliases:    []string{"endpointslice"},
		MaxWorkers: 50,
		New: func() Section {
			return &EndpointSliceController{ControllerSettings: enabledByDefault(5), MaxEndpointsPerSlice: 100}
		},
	}
}

// EndpointSliceMirroringController configures endpointslice-mirroring-controller,
// which mirrors Endpoints made by others to EndpointSlices.
type EndpointSliceMirroringController struct {
	ControllerSettings `json:",inline"`
	// MaxEndpointsPerSubset is the most addresses mirrored of one subset. Default: 1000.
	MaxEndpointsPerSubset int `json:"maxEndpointsPerSubset" check:"min=1,max=1000"`
	// EndpointUpdatesBatchPeriod is how long changes of slices are gathered before
	// they are looked at. Default: 0s.
	EndpointUpdatesBatchPeriod metav1.Duration `json:"endpointUpdatesBatchPeriod" check:"min=0s,max=1h"`
}

// EndpointSliceMirroringControllerSection describes EndpointSliceMirroringController.
func EndpointSliceMirroringControllerSection() SectionType {
	return SectionType{
		Name:       "endpointslice-mirroring-controller",
		Aliases:    []string{"endpointslicemirroring"},
		MaxWorkers: 50,
		New: func() Section {
			return &EndpointSliceMirroringController{ControllerSettings: enabledByDefault(5), MaxEndpointsPerSubset: 1000}
		},
	}
}

// ServiceCIDRController configures service-cidr-controller, which holds
// ServiceCIDRs while addresses of them are in use.
type ServiceCIDRController struct {
	ControllerSettings `json:",inline"`
}

// ServiceCIDRControllerSection describes ServiceCIDRController.
func ServiceCIDRControllerSection() SectionType {
	return SectionType{
		Name: "service-cidr-controller",
		New:  func() Section { return &ServiceCIDRController{ControllerSettings: enabledByDefault(5)} },
	}
}

// ServiceLBController configures service-lb-controller, which keeps the cloud
// load balancers of Services. It needs cluster.cloudProvider and is off by
// default. Workers also bounds how many load balancers follow a change of nodes
// at once.
type ServiceLBController struct {
	ControllerSettings `json:",inline"`
}

// ServiceLBControllerSection describes ServiceLBController.
func ServiceLBControllerSection() SectionType {
	return SectionType{
		Name:    "service-lb-controller",
		Aliases: []string{"service"},
		New:     func() Section { return &ServiceLBController{ControllerSettings: disabledByDefault()} },
	}
}
