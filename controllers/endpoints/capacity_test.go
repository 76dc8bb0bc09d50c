package endpoints

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// sized makes subsets with so many ready and not ready addresses.
func sized(ready, notReady []int) []v1.EndpointSubset {
	all := make([]v1.EndpointSubset, len(ready))
	for i := range all {
		for j := range ready[i] {
			all[i].Addresses = append(all[i].Addresses, v1.EndpointAddress{IP: fmt.Sprint("r", i, "-", j)})
		}
		for j := range notReady[i] {
			all[i].NotReadyAddresses = append(all[i].NotReadyAddresses, v1.EndpointAddress{IP: fmt.Sprint("n", i, "-", j)})
		}
	}
	return all
}

func TestTruncate(t *testing.T) {
	for _, test := range []struct {
		name                                     string
		ready, notReady, wantReady, wantNotReady []int
		over                                     bool
	}{
		{"nothing", nil, nil, nil, nil, false},
		{"just fits", []int{500, 400}, []int{50, 50}, []int{500, 400}, []int{50, 50}, false},
		{"too many ready", []int{1001}, []int{0}, []int{1000}, []int{0}, true},
		{"ready go first", []int{998}, []int{4}, []int{998}, []int{2}, true},
		{"no room for others", []int{600, 600}, []int{10, 10}, []int{500, 500}, []int{0, 0}, true},
		{"in proportion", []int{90, 110, 50, 10, 20}, []int{101, 200, 200, 201, 298},
			[]int{90, 110, 50, 10, 20}, []int{73, 144, 144, 145, 214}, true},
		{"an emptied subset goes", []int{1000, 0}, []int{0, 5}, []int{1000}, []int{0}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			given := sized(test.ready, test.notReady)
			kept, over := truncate(given)
			var ready, notReady []int
			for i := range kept {
				ready = append(ready, len(kept[i].Addresses))
				notReady = append(notReady, len(kept[i].NotReadyAddresses))
			}
			if over != test.over || !slices.Equal(ready, test.wantReady) || !slices.Equal(notReady, test.wantNotReady) {
				t.Errorf("ready %v, not ready %v, over %t", ready, notReady, over)
			}
			for i := range given {
				if len(given[i].Addresses) != test.ready[i] || len(given[i].NotReadyAddresses) != test.notReady[i] {
					t.Error("the subsets were changed")
				}
			}
		})
	}
}
