package servicecidr

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
)

// allocator is who manages the addresses of Services.
const allocator = "ipallocator.k8s.io"

// prefixes of a ServiceCIDR. The API server lets none in that cannot be parsed;
// it would contain nothing.
func prefixes(cidr *networkingv1.ServiceCIDR) []netip.Prefix {
	parsed := make([]netip.Prefix, 0, len(cidr.Spec.CIDRs))
	for _, text := range cidr.Spec.CIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			parsed = append(parsed, prefix.Masked())
		}
	}
	return parsed
}

// serviceAddress is what an IPAddress reserves for a Service; false when it is
// somebody else's.
func serviceAddress(address *networkingv1.IPAddress) (netip.Addr, bool) {
	if address.Labels[networkingv1.LabelManagedBy] != allocator {
		return netip.Addr{}, false
	}
	parsed, err := netip.ParseAddr(address.Name)
	return parsed, err == nil
}

// contains tells whether a Service can have an address of a masked prefix. The
// network's own address is never given to one, nor is the broadcast address of IPv4.
func contains(prefix netip.Prefix, address netip.Addr) bool {
	if !prefix.Contains(address) || address == prefix.Addr() {
		return false
	}
	return address.Is6() || address != last(prefix)
}

func anyContains(all []netip.Prefix, address netip.Addr) bool {
	for _, prefix := range all {
		if contains(prefix, address) {
			return true
		}
	}
	return false
}

// last address of an IPv4 prefix.
func last(prefix netip.Prefix) netip.Addr {
	bytes := prefix.Addr().As4()
	for i := range bytes {
		hostBits := min(max(8*(i+1)-prefix.Bits(), 0), 8)
		bytes[i] |= byte(1<<hostBits - 1)
	}
	return netip.AddrFrom4(bytes)
}

// covers tells whether every address of inner is one of outer.
func covers(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func anyCovers(all []netip.Prefix, inner netip.Prefix) bool {
	for _, outer := range all {
		if covers(outer, inner) {
			return true
		}
	}
	return false
}

func overlap(a, b []netip.Prefix) bool {
	for _, x := range a {
		for _, y := range b {
			if x.Overlaps(y) {
				return true
			}
		}
	}
	return false
}
