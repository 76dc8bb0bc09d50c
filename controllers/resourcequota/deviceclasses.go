package resourcequota

import (
	"errors"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

var deviceClassResource = resourceapi.SchemeGroupVersion.WithResource("deviceclasses")

// extendedResourceName is an index of DeviceClasses by the extended resource that they provide.
const extendedResourceName = "resourcequota-extended-resource-name"

var deviceClassIndexers = cache.Indexers{
	extendedResourceName: func(object any) ([]string, error) {
		if class, ok := object.(*resourceapi.DeviceClass); ok && ptr.Deref(class.Spec.ExtendedResourceName, "") != "" {
			return []string{*class.Spec.ExtendedResourceName}, nil
		}
		return nil, nil
	},
}

// deviceClasses that there are; its indexer is nil when they are not served.
type deviceClasses struct{ indexer cache.Indexer }

func (c *quotaController) deviceClasses() deviceClasses {
	monitor, ok := c.monitors.Get(deviceClassResource.GroupResource())
	if !ok || monitor.Resource != deviceClassResource {
		return deviceClasses{}
	}
	return deviceClasses{monitor.Informer.Indexer()}
}

var errClassesUnknown = errors.New("count claims of extended resources: the DeviceClasses that provide them are not known yet")

// classesUnknown tells that DeviceClasses are served, but not known yet.
func (c *quotaController) classesUnknown() bool {
	state, ok := c.monitors.State(deviceClassResource.GroupResource())
	return ok && state.Resource == deviceClassResource && !state.Synced
}

// provide tells whether some class provides the devices of an extended resource,
// by its own name or by the one that is made of the name of the class.
func (d deviceClasses) provide(resource string) bool {
	if d.indexer == nil {
		return false
	}
	if class, ok := strings.CutPrefix(resource, resourceapi.ResourceDeviceClassPrefix); ok {
		_, exists, err := d.indexer.GetByKey(class)
		return err == nil && exists
	}
	keys, err := d.indexer.IndexKeys(extendedResourceName, resource)
	return err == nil && len(keys) > 0
}

// extendedResource that a class provides; empty if it has none.
func (d deviceClasses) extendedResource(class string) string {
	if d.indexer == nil {
		return ""
	}
	object, exists, err := d.indexer.GetByKey(class)
	found, ok := object.(*resourceapi.DeviceClass)
	if err != nil || !exists || !ok {
		return ""
	}
	return ptr.Deref(found.Spec.ExtendedResourceName, "")
}

// recountExtended counts quotas again that limit requests of extended resources.
func (c *quotaController) recountExtended() {
	for _, a := range c.books.all() {
		if slices.ContainsFunc(quota.ResourceNames(a.seen().Spec.Hard), ofExtended) {
			c.queue.AddAfter(a.key, gather)
		}
	}
}

// deviceClassHandler tells of classes that provide another extended resource.
// Those of the initial list are known when the monitor has synced.
func (c *quotaController) deviceClassHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, isInInitialList bool) {
			if !isInInitialList {
				c.recountExtended()
			}
		},
		UpdateFunc: func(before, after any) {
			b, bOK := before.(*resourceapi.DeviceClass)
			a, aOK := after.(*resourceapi.DeviceClass)
			if bOK && aOK && !ptr.Equal(a.Spec.ExtendedResourceName, b.Spec.ExtendedResourceName) {
				c.recountExtended()
			}
		},
		DeleteFunc: func(any) { c.recountExtended() },
	}
}
