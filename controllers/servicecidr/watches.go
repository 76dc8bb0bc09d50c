package servicecidr

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// cidrHandler looks at every ServiceCIDR that changes, and at those that a new
// range may set free.
func (c *cidrController) cidrHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			cidr, ok := obj.(*networkingv1.ServiceCIDR)
			if !ok {
				return
			}
			c.queue.AddEvent(cidr.Name, isInInitialList)
			if !isInInitialList { // all of the initial list are looked at anyway
				c.enqueueOverlapping(cidr)
			}
		},
		UpdateFunc: func(before, now any) {
			old, ok := before.(*networkingv1.ServiceCIDR)
			if !ok {
				return
			}
			cidr, ok := now.(*networkingv1.ServiceCIDR)
			if !ok {
				return
			}
			c.queue.Add(cidr.Name)
			if old.UID != cidr.UID || !slices.Equal(old.Spec.CIDRs, cidr.Spec.CIDRs) {
				c.enqueueOverlapping(cidr)
			}
		},
	}
}

// addressHandler looks at the ServiceCIDRs that contain an address of a Service
// which comes or goes. Those of the initial list need nothing: every
// ServiceCIDR is looked at when all of them are known.
func (c *cidrController) addressHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if !isInInitialList {
				c.enqueueContaining(obj)
			}
		},
		UpdateFunc: func(before, now any) {
			old, ok := before.(*networkingv1.IPAddress)
			if !ok {
				return
			}
			address, ok := now.(*networkingv1.IPAddress)
			if !ok {
				return
			}
			_, was := serviceAddress(old)
			if _, is := serviceAddress(address); was != is {
				// It has changed hands; who has it now does not matter to where it is.
				c.enqueueNamed(address.Name)
			}
		},
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			c.enqueueContaining(obj)
		},
	}
}

func (c *cidrController) enqueueContaining(obj any) {
	object, ok := obj.(*networkingv1.IPAddress)
	if !ok {
		return
	}
	if _, ok := serviceAddress(object); ok {
		c.enqueueNamed(object.Name)
	}
}

// enqueueNamed looks at the ServiceCIDRs that contain the address of a name.
func (c *cidrController) enqueueNamed(name string) {
	address, err := netip.ParseAddr(name)
	if err != nil {
		return // the API server lets no such name in
	}
	c.enqueue(func(ranges []netip.Prefix) bool { return anyContains(ranges, address) })
}

// enqueueOverlapping looks at all ServiceCIDRs that share addresses with cidr.
func (c *cidrController) enqueueOverlapping(cidr *networkingv1.ServiceCIDR) {
	own := prefixes(cidr)
	c.enqueue(func(ranges []netip.Prefix) bool { return overlap(own, ranges) })
}

// enqueue all ServiceCIDRs whose ranges match; there are few.
func (c *cidrController) enqueue(match func([]netip.Prefix) bool) {
	all, err := c.cidrs.List(labels.Everything())
	if err != nil {
		return // not possible: a cache does not fail
	}
	for _, cidr := range all {
		if match(prefixes(cidr)) {
			c.queue.Add(cidr.Name)
		}
	}
}
