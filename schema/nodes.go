package schema

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CloudNodeLifecycleController configures cloud-node-lifecycle-controller, which
// deletes nodes whose cloud instance is gone. It needs cluster.cloudProvider and
// is off by default.
type CloudNodeLifecycleController struct {
	ControllerSettings `json:",inline"`
	// NodeMonitorPeriod is the pause between two passes over all nodes. Default: 5s.
	NodeMonitorPeriod metav1.Duration `json:"nodeMonitorPeriod" check:"min=100ms,max=24h"`
}

// CloudNodeLifecycleControllerSection describes CloudNodeLifecycleController.
func CloudNodeLifecycleControllerSection() SectionType {
	return SectionType{
		Name:    "cloud-node-lifecycle-controller",
		Aliases: []string{"cloud-node-lifecycle"},
		New: func() Section {
			return &CloudNodeLifecycleController{ControllerSettings: disabledByDefault(), NodeMonitorPeriod: duration(5 * time.Second)}
		},
	}
}

// NodeIPAMController configures node-ipam-controller, which gives each node its
// pod CIDRs. It does nothing unless cluster.allocateNodeCIDRs is true.
type NodeIPAMController struct {
	ControllerSettings `json:",inline"`
	// CIDRAllocatorType is the way ranges are given out. Default: RangeAllocator, the only one so far.
	CIDRAllocatorType string `json:"cidrAllocatorType" check:"oneof=RangeAllocator"`
	// NodeCIDRMaskSize is the prefix length of a node's range, with one entry in
	// cluster.clusterCIDRs only; 0 takes the size of the family. Default: 0.
	NodeCIDRMaskSize int `json:"nodeCIDRMaskSize" check:"min=0,max=128"`
	// NodeCIDRMaskSizeIPv4 is the prefix length of a node's IPv4 range; 0 means 24. Default: 0.
	NodeCIDRMaskSizeIPv4 int `json:"nodeCIDRMaskSizeIPv4" check:"min=0,max=32"`
	// NodeCIDRMaskSizeIPv6 is the prefix length of a node's IPv6 range; 0 means 64. Default: 0.
	NodeCIDRMaskSizeIPv6 int `json:"nodeCIDRMaskSizeIPv6" check:"min=0,max=128"`
}

// NodeIPAMControllerSection describes NodeIPAMController.
func NodeIPAMControllerSection() SectionType {
	return SectionType{
		Name:    "node-ipam-controller",
		Aliases: []string{"nodeipam"},
		New: func() Section {
			return &NodeIPAMController{ControllerSettings: enabledByDefault(30), CIDRAllocatorType: "RangeAllocator"}
		},
	}
}

// NodeLifecycleController configures node-lifecycle-controller, which watches
// the health of nodes and taints those that are not ready.
type NodeLifecycleController struct {
	ControllerSettings `json:",inline"`
	// PodWorkers is how many pods are looked at at once; workers is for nodes. Default: 4.
	PodWorkers int `json:"podWorkers" check:"min=1,max=10000"`
	// NodeMonitorPeriod is the pause between two health passes. Default: 5s.
	NodeMonitorPeriod metav1.Duration `json:"nodeMonitorPeriod" check:"min=100ms,max=24h"`
	// NodeStartupGracePeriod is how long a node may have no Ready condition. Default: 1m.
	NodeStartupGracePeriod metav1.Duration `json:"nodeStartupGracePeriod" check:"min=1s,max=24h"`
	// NodeMonitorGracePeriod is how long a node may be silent before it counts as
	// not ready. It should exceed 45s, the time after which a kubelet notices a
	// dead connection, and be a multiple of the kubelet's renewal period. Default: 50s.
	NodeMonitorGracePeriod metav1.Duration `json:"nodeMonitorGracePeriod" check:"min=1s,max=24h"`
	// NodeEvictionRate is how many nodes per second are tainted NoExecute in a healthy zone. Default: 0.1.
	NodeEvictionRate float64 `json:"nodeEvictionRate" check:"min=0,max=10000"`
	// SecondaryNodeEvictionRate is the rate in a partially disrupted zone larger
	// than LargeClusterSizeThreshold. Default: 0.01.
	SecondaryNodeEvictionRate float64 `json:"secondaryNodeEvictionRate" check:"min=0,max=10000"`
	// LargeClusterSizeThreshold is the number of nodes up to which a partially
	// disrupted zone is not evicted from at all. Default: 50.
	LargeClusterSizeThreshold int `json:"largeClusterSizeThreshold" check:"min=0,max=1000000"`
	// UnhealthyZoneThreshold is the fraction of nodes not ready that makes a zone
	// partially disrupted. Default: 0.55.
	UnhealthyZoneThreshold float64 `json:"unhealthyZoneThreshold" check:"min=0,max=1"`
}

// NodeLifecycleControllerSection describes NodeLifecycleController.
func NodeLifecycleControllerSection() SectionType {
	return SectionType{
		Name:    "node-lifecycle-controller",
		Aliases: []string{"nodelifecycle"},
		New: func() Section {
			return &NodeLifecycleController{
				ControllerSettings:        enabledByDefault(8),
				PodWorkers:                4,
				NodeMonitorPeriod:         duration(5 * time.Second),
				NodeStartupGracePeriod:    duration(time.Minute),
				NodeMonitorGracePeriod:    duration(50 * time.Second),
				NodeEvictionRate:          0.1,
				SecondaryNodeEvictionRate: 0.01,
				LargeClusterSizeThreshold: 50,
				UnhealthyZoneThreshold:    0.55,
			}
		},
	}
}

// NodeRouteController configures node-route-controller, which keeps a cloud
// route to each node's pod CIDRs. It needs cluster.cloudProvider and is off by
// default.
type NodeRouteController struct {
	ControllerSettings `json:",inline"`
	// ReconciliationPeriod is the time between two full passes. Default: 10s.
	ReconciliationPeriod metav1.Duration `json:"reconciliationPeriod" check:"min=1s,max=24h"`
}

// NodeRouteControllerSection describes NodeRouteController.
func NodeRouteControllerSection() SectionType {
	return SectionType{
		Name:    "node-route-controller",
		Aliases: []string{"route"},
		New: func() Section {
			return &NodeRouteController{ControllerSettings: disabledByDefault(), ReconciliationPeriod: duration(10 * time.Second)}
		},
	}
}

// TaintEvictionController configures taint-eviction-controller, which deletes
// pods that do not tolerate a NoExecute taint of their node.
type TaintEvictionController struct {
	ControllerSettings `json:",inline"`
}

// TaintEvictionControllerSection describes TaintEvictionController.
func TaintEvictionControllerSection() SectionType {
	return SectionType{
		Name: "taint-eviction-controller",
		New:  func() Section { return &TaintEvictionController{ControllerSettings: enabledByDefault(8)} },
	}
}

// TTLController configures ttl-controller, which annotates nodes with how long
// kubelets may cache secrets and config maps.
type TTLController struct {
	ControllerSettings `json:",inline"`
}

// TTLControllerSection describes TTLController.
func TTLControllerSection() SectionType {
	return SectionType{
		Name:    "ttl-controller",
		Aliases: []string{"ttl"},
		New:     func() Section { return &TTLController{ControllerSettings: enabledByDefault(5)} },
	}
}
