package endpoints

import (
	v1 "k8s.io/api/core/v1"
)

// capacity is the most addresses that Endpoints hold.
const capacity = 1000

// truncate takes away what is over capacity: addresses that are not ready at
// first, and of each subset in proportion. The result does not depend on
// anything but the subsets, which are not changed.
func truncate(all []v1.EndpointSubset) (kept []v1.EndpointSubset, overCapacity bool) {
	ready, notReady := 0, 0
	for i := range all {
		ready += len(all[i].Addresses)
		notReady += len(all[i].NotReadyAddresses)
	}
	if ready+notReady <= capacity {
		return all, false
	}
	readyLeft := min(ready, capacity)
	readyBudget, notReadyBudget := readyLeft, capacity-readyLeft
	notReadyLeft := notReadyBudget
	for i := range all {
		subset := all[i]
		subset.Addresses = first(subset.Addresses, ready, readyBudget, &readyLeft)
		subset.NotReadyAddresses = first(subset.NotReadyAddresses, notReady, notReadyBudget, &notReadyLeft)
		if len(subset.Addresses)+len(subset.NotReadyAddresses) > 0 {
			kept = append(kept, subset)
		}
	}
	return kept, true
}

// first addresses of a subset, its share of the budget rounded up, but no more than is left of it.
func first(addresses []v1.EndpointAddress, total, budget int, left *int) []v1.EndpointAddress {
	if len(addresses) == 0 {
		return nil
	}
	share := min((len(addresses)*budget+total-1)/total, *left)
	*left -= share
	if share == 0 {
		return nil
	}
	return addresses[:share]
}
