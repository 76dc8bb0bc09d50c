// Package subsets brings the subsets of Endpoints into one canonical form, so
// that equal endpoints look equal.
package subsets

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/dump"
	"k8s.io/utils/ptr"
)

// address is what makes an address the same: pods may share an IP.
type address struct {
	ip  string
	uid types.UID
}

// port by value: v1.EndpointPort has a pointer.
type port struct {
	name           string
	number         int32
	protocol       v1.Protocol
	appProtocol    string
	hasAppProtocol bool
}

// noPort is what an address without any port is filed under.
var noPort = port{number: -1}

// state of an address on one port.
type state struct {
	address *v1.EndpointAddress
	ready   bool
}

// Repack returns subsets that say the same: ports with the same addresses are
// in one subset; an address is once in each; not ready goes before ready for
// one that is both. Addresses are ordered by IP, then UID of the target, ports
// and subsets by a hash, as kube-controller-manager orders them. What is
// returned shares addresses with what was given, which is not changed.
func Repack(given []v1.EndpointSubset) []v1.EndpointSubset {
	addressesOf := map[port]map[address]state{}
	for i := range given {
		subset := &given[i]
		ports := []port{noPort}
		if len(subset.Ports) > 0 {
			ports = ports[:0]
			for _, p := range subset.Ports {
				ports = append(ports, portOf(p))
			}
		}
		for _, p := range ports {
			if addressesOf[p] == nil {
				addressesOf[p] = map[address]state{}
			}
			for j := range subset.Addresses {
				add(addressesOf[p], &subset.Addresses[j], true)
			}
			for j := range subset.NotReadyAddresses {
				add(addressesOf[p], &subset.NotReadyAddresses[j], false)
			}
		}
	}

	bySet := map[string]*v1.EndpointSubset{}
	for p, addresses := range addressesOf {
		if len(addresses) == 0 {
			continue
		}
		sorted := sortedKeys(addresses)
		set := setName(p != noPort, sorted, addresses)
		subset := bySet[set]
		if subset == nil {
			subset = &v1.EndpointSubset{}
			for _, key := range sorted {
				if s := addresses[key]; s.ready {
					subset.Addresses = append(subset.Addresses, *s.address)
				} else {
					subset.NotReadyAddresses = append(subset.NotReadyAddresses, *s.address)
				}
			}
			bySet[set] = subset
		}
		if p != noPort {
			subset.Ports = append(subset.Ports, p.endpointPort())
		}
	}

	packed := make([]v1.EndpointSubset, 0, len(bySet))
	for _, subset := range bySet {
		sortByHash(subset.Ports)
		packed = append(packed, *subset)
	}
	sortByHash(packed)
	return packed
}

func portOf(p v1.EndpointPort) port {
	return port{p.Name, p.Port, p.Protocol, ptr.Deref(p.AppProtocol, ""), p.AppProtocol != nil}
}

func (p port) endpointPort() v1.EndpointPort {
	out := v1.EndpointPort{Name: p.name, Port: p.number, Protocol: p.protocol}
	if p.hasAppProtocol {
		out.AppProtocol = ptr.To(p.appProtocol)
	}
	return out
}

func keyOf(a *v1.EndpointAddress) address {
	key := address{ip: a.IP}
	if a.TargetRef != nil {
		key.uid = a.TargetRef.UID
	}
	return key
}

func add(to map[address]state, a *v1.EndpointAddress, ready bool) {
	key := keyOf(a)
	if before, ok := to[key]; ok {
		to[key] = state{before.address, before.ready && ready}
		return
	}
	to[key] = state{a, ready}
}

func sortedKeys(addresses map[address]state) []address {
	keys := make([]address, 0, len(addresses))
	for key := range addresses {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b address) int { return cmp.Or(cmp.Compare(a.ip, b.ip), cmp.Compare(a.uid, b.uid)) })
	return keys
}

// setName is the same for the same addresses in the same states, unless one set
// has ports and the other has none: in one subset these would get ports.
func setName(ports bool, sorted []address, addresses map[address]state) string {
	var name strings.Builder
	fmt.Fprintf(&name, "%t\n", ports)
	for _, key := range sorted {
		fmt.Fprintf(&name, "%s %s %t\n", key.ip, key.uid, addresses[key].ready)
	}
	return name.String()
}

// sortByHash of all that is in the items.
func sortByHash[T any](items []T) {
	if len(items) < 2 {
		return // hashing a thousand addresses takes long
	}
	type hashed struct {
		hash string
		item T
	}
	all := make([]hashed, len(items))
	for i, item := range items {
		hasher := fnv.New128a()
		fmt.Fprintf(hasher, "%v", dump.ForHash(item))
		all[i] = hashed{hex.EncodeToString(hasher.Sum(nil)), item}
	}
	slices.SortFunc(all, func(a, b hashed) int { return cmp.Compare(a.hash, b.hash) })
	for i := range all {
		items[i] = all[i].item
	}
}
