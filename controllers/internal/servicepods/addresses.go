package servicepods

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	netutil "k8s.io/utils/net"
)

// Publishable tells whether the API server takes ip as the address of an
// endpoint. It refuses those that mean something else on each machine, and with
// them the whole object.
func Publishable(ip string) bool {
	parsed := netutil.ParseIPSloppy(ip)
	return parsed != nil && !parsed.IsUnspecified() && !parsed.IsLoopback() &&
		!parsed.IsLinkLocalUnicast() && !parsed.IsLinkLocalMulticast()
}

// WithPublishable returns the pods without the addresses that are not
// Publishable. Pods that have such are copied for it, as far as needed.
func WithPublishable(pods []*v1.Pod) []*v1.Pod {
	refused := func(ip v1.PodIP) bool { return !Publishable(ip.IP) }
	for i, pod := range pods {
		if !slices.ContainsFunc(pod.Status.PodIPs, refused) {
			continue
		}
		changed := *pod
		changed.Status.PodIPs = slices.DeleteFunc(slices.Clone(pod.Status.PodIPs), refused)
		pods[i] = &changed
	}
	return pods
}
