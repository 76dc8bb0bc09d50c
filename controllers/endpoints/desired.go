package endpoints

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/endpointslice"
	"k8s.io/endpointslice/util"
	netutil "k8s.io/utils/net"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/servicepods"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/subsets"
)

const (
	// managedBy is the label that names who looks after Endpoints, and manager its value.
	managedBy = "endpoints.kubernetes.io/managed-by"
	manager   = "endpoint-controller"
	// truncated is the value of the annotation v1.EndpointsOverCapacity.
	truncated = "truncated"
)

// labelsOf the Endpoints of a Service: its own, but for the two that say
// something about the Endpoints.
func labelsOf(service *v1.Service) map[string]string {
	labels := maps.Clone(service.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[managedBy] = manager
	delete(labels, v1.IsHeadlessService)
	if service.Spec.ClusterIP == v1.ClusterIPNone || service.Spec.ClusterIP == "" {
		labels[v1.IsHeadlessService] = ""
	}
	return labels
}

// annotationsOf Endpoints that were given before. The trigger time is of this
// write, and taken away when nothing has triggered it.
func annotationsOf(given map[string]string, trigger time.Time, overCapacity bool) map[string]string {
	annotations := maps.Clone(given)
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, v1.EndpointsLastChangeTriggerTime)
	if !trigger.IsZero() {
		annotations[v1.EndpointsLastChangeTriggerTime] = trigger.UTC().Format(time.RFC3339Nano)
	}
	delete(annotations, v1.EndpointsOverCapacity)
	if overCapacity {
		annotations[v1.EndpointsOverCapacity] = truncated
	}
	return annotations
}

// subsetsOf the pods of a Service, in canonical form.
func subsetsOf(service *v1.Service, pods []*v1.Pod) []v1.EndpointSubset {
	var all []v1.EndpointSubset
	for _, pod := range pods {
		if !util.ShouldPodBeInEndpoints(pod, service.Spec.PublishNotReadyAddresses) {
			continue
		}
		address, ok := addressOf(service, pod)
		if !ok {
			continue
		}
		subset := v1.EndpointSubset{}
		if service.Spec.PublishNotReadyAddresses || util.IsPodReady(pod) {
			subset.Addresses = []v1.EndpointAddress{address}
		} else {
			subset.NotReadyAddresses = []v1.EndpointAddress{address}
		}
		if len(service.Spec.Ports) == 0 {
			if service.Spec.ClusterIP == v1.ClusterIPNone {
				all = append(all, subset)
			}
			continue
		}
		for i := range service.Spec.Ports {
			port := &service.Spec.Ports[i]
			number, err := endpointslice.FindPort(pod, port)
			if err != nil {
				continue // the pod has no port of that name
			}
			subset.Ports = append(subset.Ports, v1.EndpointPort{
				Name: port.Name, Port: int32(number), Protocol: port.Protocol, AppProtocol: port.AppProtocol,
			})
		}
		if len(subset.Ports) > 0 {
			all = append(all, subset)
		}
	}
	return subsets.Repack(all)
}

// addressOf a pod in the family of the Service; false when it has none.
func addressOf(service *v1.Service, pod *v1.Pod) (v1.EndpointAddress, bool) {
	family := familyOf(service, pod)
	for _, podIP := range pod.Status.PodIPs {
		if !servicepods.Publishable(podIP.IP) || netutil.IsIPv6String(podIP.IP) != (family == v1.IPv6Protocol) {
			continue
		}
		address := v1.EndpointAddress{
			IP: netutil.ParseIPSloppy(podIP.IP).String(),
			TargetRef: &v1.ObjectReference{
				Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			},
		}
		if pod.Spec.NodeName != "" {
			node := pod.Spec.NodeName
			address.NodeName = &node
		}
		if util.ShouldSetHostname(pod, service) {
			address.Hostname = pod.Spec.Hostname
		}
		return address, true
	}
	return v1.EndpointAddress{}, false
}

// familyOf a Service is its first. A Service that an old API server has stored
// without families has that of its address, a headless one that of each pod.
func familyOf(service *v1.Service, pod *v1.Pod) v1.IPFamily {
	ip := service.Spec.ClusterIP
	switch {
	case len(service.Spec.IPFamilies) > 0:
		return service.Spec.IPFamilies[0]
	case ip == "" || ip == v1.ClusterIPNone:
		ip = pod.Status.PodIP
	}
	if netutil.IsIPv6String(ip) {
		return v1.IPv6Protocol
	}
	return v1.IPv4Protocol
}

// newEndpoints of a Service that has none.
func newEndpoints(service *v1.Service) *v1.Endpoints {
	return &v1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name}}
}
