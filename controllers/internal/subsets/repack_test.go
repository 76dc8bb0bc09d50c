package subsets_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/subsets"
)

// addresses are IP, or IP=UID of a target.
func addresses(texts ...string) []v1.EndpointAddress {
	var all []v1.EndpointAddress
	for _, text := range texts {
		var ip, uid string
		if n, _ := fmt.Sscanf(text, "%d=%s", new(int), &uid); n == 2 {
			ip = text[:len(text)-len(uid)-1]
			all = append(all, v1.EndpointAddress{IP: ip, TargetRef: &v1.ObjectReference{UID: types.UID(uid)}})
			continue
		}
		all = append(all, v1.EndpointAddress{IP: text})
	}
	return all
}

func ports(numbers ...int32) []v1.EndpointPort {
	var all []v1.EndpointPort
	for _, number := range numbers {
		all = append(all, v1.EndpointPort{Name: fmt.Sprint(number), Port: number, Protocol: v1.ProtocolTCP})
	}
	return all
}

// texts of subsets, sorted: their order is by hash.
func texts(all []v1.EndpointSubset) []string {
	var out []string
	for _, s := range all {
		var numbers []int
		for _, p := range s.Ports {
			numbers = append(numbers, int(p.Port))
		}
		slices.Sort(numbers)
		text := func(list []v1.EndpointAddress) (all []string) {
			for _, a := range list {
				if a.TargetRef != nil {
					all = append(all, a.IP+"="+string(a.TargetRef.UID))
				} else {
					all = append(all, a.IP)
				}
			}
			return all
		}
		out = append(out, fmt.Sprint(text(s.Addresses), text(s.NotReadyAddresses), numbers))
	}
	slices.Sort(out)
	return out
}

func TestRepack(t *testing.T) {
	for _, test := range []struct {
		name  string
		given []v1.EndpointSubset
		want  []string
	}{
		{"nothing", nil, nil},
		{"ports without addresses", []v1.EndpointSubset{{Ports: ports(80)}}, nil},
		{"one of each", []v1.EndpointSubset{{Addresses: addresses("1"), Ports: ports(80)}}, []string{"[1] [] [80]"}},
		{"without ports", []v1.EndpointSubset{{Addresses: addresses("1")}, {Addresses: addresses("2")}}, []string{"[1 2] [] []"}},
		{"the same address on two ports", []v1.EndpointSubset{
			{Addresses: addresses("1"), Ports: ports(80)}, {Addresses: addresses("1"), Ports: ports(90)},
		}, []string{"[1] [] [80 90]"}},
		{"two addresses on the same port", []v1.EndpointSubset{
			{Addresses: addresses("2"), Ports: ports(80)}, {Addresses: addresses("1"), Ports: ports(80)},
		}, []string{"[1 2] [] [80]"}},
		{"different sets", []v1.EndpointSubset{
			{Addresses: addresses("1", "2"), Ports: ports(80)}, {Addresses: addresses("1"), Ports: ports(90)},
		}, []string{"[1 2] [] [80]", "[1] [] [90]"}},
		{"with ports and without", []v1.EndpointSubset{
			{Addresses: addresses("1"), Ports: ports(80)}, {Addresses: addresses("1")},
		}, []string{"[1] [] [80]", "[1] [] []"}},
		{"ready on one port only", []v1.EndpointSubset{
			{Addresses: addresses("1"), Ports: ports(80)}, {NotReadyAddresses: addresses("1"), Ports: ports(90)},
		}, []string{"[1] [] [80]", "[] [1] [90]"}},
		{"both ready and not", []v1.EndpointSubset{
			{Addresses: addresses("1"), NotReadyAddresses: addresses("1"), Ports: ports(80)},
		}, []string{"[] [1] [80]"}},
		{"the same IP of two pods", []v1.EndpointSubset{
			{Addresses: addresses("1=b", "1=a", "1"), Ports: ports(80)},
		}, []string{"[1 1=a 1=b] [] [80]"}},
		{"the same address twice", []v1.EndpointSubset{
			{Addresses: addresses("1=a", "1=a"), Ports: ports(80, 80)},
		}, []string{"[1=a] [] [80]"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := texts(subsets.Repack(test.given)); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Pointers to equal protocols are equal.
func TestRepackComparesPortsByValue(t *testing.T) {
	of := func() v1.EndpointSubset {
		return v1.EndpointSubset{Addresses: addresses("1"), Ports: []v1.EndpointPort{{Port: 80, AppProtocol: ptr.To("h2c")}}}
	}
	packed := subsets.Repack([]v1.EndpointSubset{of(), of()})
	if len(packed) != 1 || len(packed[0].Ports) != 1 || *packed[0].Ports[0].AppProtocol != "h2c" {
		t.Errorf("%+v", packed)
	}
}

// The canonical form does not depend on the order of what was given, is its own
// canonical form, and says of each address on each port what was said before.
func TestRepackIsCanonical(t *testing.T) {
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for range 2000 {
		var given []v1.EndpointSubset
		for range random.IntN(5) {
			s := v1.EndpointSubset{}
			for range random.IntN(3) {
				s.Ports = append(s.Ports, ports(int32(80+random.IntN(3)))...)
			}
			for range random.IntN(4) {
				s.Addresses = append(s.Addresses, addresses(fmt.Sprint(random.IntN(5)))...)
				s.NotReadyAddresses = append(s.NotReadyAddresses, addresses(fmt.Sprint(random.IntN(5)))...)
			}
			given = append(given, s)
		}
		packed := subsets.Repack(given)
		shuffled := slices.Clone(given)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again := subsets.Repack(shuffled); !reflect.DeepEqual(again, packed) {
			t.Fatalf("%v became %v and, in another order, %v", given, packed, again)
		}
		if again := subsets.Repack(packed); !reflect.DeepEqual(again, packed) {
			t.Fatalf("%v is not canonical, but %v", packed, again)
		}
		if said, says := meaning(given), meaning(packed); !reflect.DeepEqual(said, says) {
			t.Fatalf("%v said %v, and %v says %v", given, said, packed, says)
		}
	}
}

// meaning is whether each address is ready on each port.
func meaning(all []v1.EndpointSubset) map[string]bool {
	ready := map[string]bool{}
	say := func(s *v1.EndpointSubset, list []v1.EndpointAddress, is bool) {
		numbers := []int32{0}
		if len(s.Ports) > 0 {
			numbers = numbers[:0]
			for _, p := range s.Ports {
				numbers = append(numbers, p.Port)
			}
		}
		for _, number := range numbers {
			for _, a := range list {
				key := fmt.Sprint(a.IP, ":", number)
				if before, ok := ready[key]; ok {
					is := before && is
					ready[key] = is
					continue
				}
				ready[key] = is
			}
		}
	}
	for i := range all {
		say(&all[i], all[i].Addresses, true)
		say(&all[i], all[i].NotReadyAddresses, false)
	}
	return ready
}

func BenchmarkRepack1000Pods(b *testing.B) {
	var given []v1.EndpointSubset
	for i := range 1000 {
		given = append(given, v1.EndpointSubset{Addresses: addresses(fmt.Sprint(i)), Ports: ports(80, 443)})
	}
	for b.Loop() {
		if packed := subsets.Repack(given); len(packed) != 1 {
			b.Fatal(len(packed))
		}
	}
}
