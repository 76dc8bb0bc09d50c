package servicecidr

import (
	"math/big"
	"net"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestContains(t *testing.T) {
	t.Parallel()
	tests := []struct {
		prefix, address string
		want            bool
	}{
		{"10.0.0.0/24", "10.0.0.1", true},
		{"10.0.0.0/24", "10.0.0.254", true},
		{"10.0.0.0/24", "10.0.0.0", false},
		{"10.0.0.0/24", "10.0.0.255", false},
		{"10.0.0.0/24", "10.0.1.1", false},
		{"10.0.0.0/8", "10.0.0.255", true},
		{"10.0.0.0/8", "10.255.255.255", false},
		{"192.168.0.0/29", "192.168.0.6", true},
		{"192.168.0.0/29", "192.168.0.7", false},
		{"10.0.0.0/31", "10.0.0.0", false},
		{"10.0.0.0/31", "10.0.0.1", false},
		{"10.0.0.1/32", "10.0.0.1", false},
		{"fd00::/64", "fd00::1", true},
		{"fd00::/64", "fd00::", false},
		{"fd00::/64", "fd00::ffff:ffff:ffff:ffff", true},
		{"fd00::/64", "fd01::1", false},
		{"fd00::/64", "10.0.0.1", false},
	}
	for _, test := range tests {
		if got := contains(netip.MustParsePrefix(test.prefix), netip.MustParseAddr(test.address)); got != test.want {
			t.Errorf("%s contains %s: got %t, want %t", test.prefix, test.address, got, test.want)
		}
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		outer, inner string
		want         bool
	}{
		{"10.0.0.0/24", "10.0.0.0/24", true},
		{"10.0.0.0/16", "10.0.3.0/24", true},
		{"10.0.3.0/24", "10.0.0.0/16", false},
		{"10.0.0.0/24", "10.0.1.0/24", false},
		{"fd00::/48", "fd00::/64", true},
		{"fd00::/8", "10.0.0.0/24", false},
		{"0.0.0.0/0", "fd00::/64", false},
	}
	for _, test := range tests {
		if got := covers(netip.MustParsePrefix(test.outer), netip.MustParsePrefix(test.inner)); got != test.want {
			t.Errorf("%s covers %s: got %t, want %t", test.outer, test.inner, got, test.want)
		}
	}
}

func TestInUse(t *testing.T) {
	t.Parallel()
	address := func(name, manager string) *networkingv1.IPAddress {
		return &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{networkingv1.LabelManagedBy: manager},
		}}
	}
	ranges := func(texts ...string) (parsed []netip.Prefix) {
		for _, text := range texts {
			parsed = append(parsed, netip.MustParsePrefix(text))
		}
		return parsed
	}
	tests := []struct {
		name           string
		going, staying []netip.Prefix
		address        *networkingv1.IPAddress
		want           bool
	}{
		{"inside", ranges("10.0.0.0/24"), nil, address("10.0.0.7", allocator), true},
		{"outside", ranges("10.0.0.0/24"), nil, address("10.0.1.7", allocator), false},
		{"in another one too", ranges("10.0.0.0/24"), ranges("10.0.0.0/28"), address("10.0.0.7", allocator), false},
		{"at the edge of another one", ranges("10.0.0.0/24"), ranges("10.0.0.0/29"), address("10.0.0.7", allocator), true},
		{"of the second range", ranges("10.0.0.0/24", "fd00::/64"), ranges("10.0.0.0/16"), address("fd00::7", allocator), true},
		{"somebody else's", ranges("10.0.0.0/24"), nil, address("10.0.0.7", "someone"), false},
		{"no address", ranges("10.0.0.0/24"), nil, address("seven", allocator), false},
	}
	for _, test := range tests {
		if got := inUse(test.going, test.staying, []*networkingv1.IPAddress{test.address}); got != test.want {
			t.Errorf("%s: got %t, want %t", test.name, got, test.want)
		}
	}
}

// FuzzContains compares with package net and arithmetic on whole numbers.
func FuzzContains(f *testing.F) {
	f.Add("10.0.0.0/24", "10.0.0.255")
	f.Add("10.0.0.0/0", "255.255.255.255")
	f.Add("10.0.0.1/32", "10.0.0.1")
	f.Add("192.168.0.0/29", "192.168.0.7")
	f.Add("fd00::/64", "fd00::")
	f.Fuzz(func(t *testing.T, cidr, name string) {
		ranges := prefixes(&networkingv1.ServiceCIDR{Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{cidr}}})
		address, err := netip.ParseAddr(name)
		_, network, netErr := net.ParseCIDR(cidr)
		if len(ranges) == 0 || err != nil || netErr != nil || address.Zone() != "" || address.Is4In6() || ranges[0].Addr().Is4In6() {
			return
		}
		ip := net.ParseIP(name)
		ones, bits := network.Mask.Size()
		host := new(big.Int).Sub(new(big.Int).SetBytes(address.AsSlice()), new(big.Int).SetBytes(network.IP))
		size := new(big.Int).Lsh(big.NewInt(1), uint(bits-ones))
		edge := host.Sign() == 0 || bits == 32 && new(big.Int).Add(host, big.NewInt(1)).Cmp(size) == 0
		if got, want := contains(ranges[0], address), network.Contains(ip) && !edge; got != want {
			t.Errorf("%s contains %s: got %t, want %t", cidr, name, got, want)
		}
	})
}
