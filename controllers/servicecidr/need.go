package servicecidr

import (
	"fmt"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// needed tells whether a Service would lose the range of its address with cidr.
// Ranges that are being deleted themselves give no address a home: two that
// leave together must not rely on each other.
func (c *cidrController) needed(cidr *networkingv1.ServiceCIDR) (bool, error) {
	all, err := c.cidrs.List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("list service CIDRs: %w", err)
	}
	var staying []netip.Prefix
	for _, other := range all {
		if other.Name != cidr.Name && other.DeletionTimestamp == nil {
			staying = append(staying, prefixes(other)...)
		}
	}
	var uncovered []netip.Prefix
	for _, prefix := range prefixes(cidr) {
		if !anyCovers(staying, prefix) {
			uncovered = append(uncovered, prefix)
		}
	}
	if len(uncovered) == 0 {
		return false, nil
	}
	addresses, err := c.addresses.List(labels.Everything())
	if err != nil {
		return false, fmt.Errorf("list IP addresses: %w", err)
	}
	return inUse(uncovered, staying, addresses), nil
}

// inUse tells whether a Service has an address of going that is in none of staying.
func inUse(going, staying []netip.Prefix, addresses []*networkingv1.IPAddress) bool {
	for _, object := range addresses {
		address, ok := serviceAddress(object)
		if ok && anyContains(going, address) && !anyContains(staying, address) {
			return true
		}
	}
	return false
}
