package endpointslicemirroring

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/endpointslice/util"
	netutil "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/subsets"
)

// group is what slices are told apart by: each wanted one has one slice.
type group struct {
	family discovery.AddressType
	ports  util.PortMapKey
}

// content of the slice of a group.
type content struct {
	ports     []discovery.EndpointPort
	endpoints util.EndpointSet
}

// wanted is what Endpoints ask for.
type wanted struct {
	groups map[group]*content
	// invalid addresses, and surplus ones beyond the most that are mirrored of a subset.
	invalid, surplus int
}

// wantedOf returns what Endpoints ask for when at most maxPerSubset addresses of
// a subset are mirrored, of both families together.
func wantedOf(endpoints *v1.Endpoints, maxPerSubset int) wanted {
	w := wanted{groups: map[group]*content{}}
	for _, subset := range subsets.Repack(endpoints.Subsets) {
		ports := portsOf(subset.Ports)
		key := util.NewPortMapKey(ports)
		accepted := 0
		for i := range len(subset.Addresses) + len(subset.NotReadyAddresses) {
			address, ready := addressOf(&subset, i)
			ip := netutil.ParseIPSloppy(address.IP)
			switch {
			case accepted == maxPerSubset:
				w.surplus++ // whether it is valid is not looked at
				continue
			case ip == nil:
				w.invalid++
				continue
			}
			accepted++
			family := discovery.AddressTypeIPv4
			if netutil.IsIPv6(ip) {
				family = discovery.AddressTypeIPv6
			}
			w.content(group{family, key}, ports).endpoints.Insert(&discovery.Endpoint{
				Addresses:  []string{ip.String()},
				Conditions: discovery.EndpointConditions{Ready: ptr.To(ready)},
				TargetRef:  address.TargetRef,
				NodeName:   address.NodeName,
				Hostname:   hostnameOf(address),
			})
		}
	}
	return w
}

func (w *wanted) content(key group, ports []discovery.EndpointPort) *content {
	c := w.groups[key]
	if c == nil {
		c = &content{ports: ports, endpoints: util.EndpointSet{}}
		w.groups[key] = c
	}
	return c
}

// addressOf is the i-th address of a subset, the ready ones first.
func addressOf(subset *v1.EndpointSubset, i int) (address *v1.EndpointAddress, ready bool) {
	if i < len(subset.Addresses) {
		return &subset.Addresses[i], true
	}
	return &subset.NotReadyAddresses[i-len(subset.Addresses)], false
}

func hostnameOf(address *v1.EndpointAddress) *string {
	if address.Hostname == "" {
		return nil
	}
	return &address.Hostname
}

func portsOf(ports []v1.EndpointPort) []discovery.EndpointPort {
	out := make([]discovery.EndpointPort, 0, len(ports))
	for i := range ports {
		out = append(out, discovery.EndpointPort{
			Name:        ptr.To(ports[i].Name),
			Port:        ptr.To(ports[i].Port),
			Protocol:    ptr.To(ports[i].Protocol),
			AppProtocol: ports[i].AppProtocol,
		})
	}
	return out
}

// annotationsOf the slices: what is said of the Endpoints themselves is not mirrored.
func annotationsOf(endpoints *v1.Endpoints) map[string]string {
	annotations := maps.Clone(endpoints.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, v1.EndpointsLastChangeTriggerTime)
	delete(annotations, v1.LastAppliedConfigAnnotation)
	return annotations
}

// labelsOf the slices.
func labelsOf(endpoints *v1.Endpoints) map[string]string {
	labels := maps.Clone(endpoints.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[discovery.LabelServiceName] = endpoints.Name
	labels[discovery.LabelManagedBy] = manager
	return labels
}

// sliceOf a group, new but for the name.
func sliceOf(endpoints *v1.Endpoints, family discovery.AddressType, c *content) *discovery.EndpointSlice {
	slice := &discovery.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    endpoints.Namespace,
			GenerateName: ownslices.NamePrefix(endpoints.Name),
			Labels:       labelsOf(endpoints),
			Annotations:  annotationsOf(endpoints),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(endpoints, v1.SchemeGroupVersion.WithKind("Endpoints")),
			},
		},
		AddressType: family,
		Ports:       c.ports,
		Endpoints:   make([]discovery.Endpoint, 0, c.endpoints.Len()),
	}
	for _, endpoint := range sortedEndpoints(c.endpoints) {
		slice.Endpoints = append(slice.Endpoints, *endpoint)
	}
	return slice
}
