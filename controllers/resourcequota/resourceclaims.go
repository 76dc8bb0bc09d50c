package resourcequota

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/tools/cache"
)

var resourceClaims = resourceapi.SchemeGroupVersion.WithResource("resourceclaims")

// extendedClaimOwner is an index of ResourceClaims that were made for the
// extended resources of a pod, by the UID of that pod.
const extendedClaimOwner = "resourcequota-extended-claim-owner"

var resourceClaimIndexers = cache.Indexers{
	extendedClaimOwner: func(object any) ([]string, error) {
		if claim, ok := object.(*resourceapi.ResourceClaim); ok {
			if owner := extendedOwner(claim); owner != nil {
				return []string{string(owner.UID)}, nil
			}
		}
		return nil, nil
	},
}

func (c *quotaController) resourceClaimEvaluator(list generic.ListFuncByNamespace, claims cache.Indexer) *evaluator {
	return &evaluator{
		resource: resourceClaims.GroupResource(),
		list:     list,
		matches: matching(func(name corev1.ResourceName) bool {
			if name == countResourceClaims || strings.HasSuffix(string(name), deviceClassDevices) {
				return true
			}
			requested, ok := strings.CutPrefix(string(name), requestsPrefix)
			return ok && c.deviceClasses().provide(requested)
		}),
		inScope: generic.MatchesNoScopeFunc,
		usage: func(object runtime.Object) (corev1.ResourceList, error) {
			claim, err := as[*resourceapi.ResourceClaim](object)
			if err != nil {
				return nil, err
			}
			return c.resourceClaimUsage(claim, claims), nil
		},
	}
}

func (c *quotaController) resourceClaimUsage(claim *resourceapi.ResourceClaim, claims cache.Indexer) corev1.ResourceList {
	used := corev1.ResourceList{countResourceClaims: one}
	classes := c.deviceClasses()
	var byPod corev1.ResourceList
	if pod := c.extendedClaimPod(claim, claims); pod != nil {
		byPod = podUsage(pod, c.podLevel, c.clock.Now())
	}
	for class, devices := range devicesByClass(claim) {
		quantity := *resource.NewQuantity(devices, resource.DecimalSI)
		used[corev1.ResourceName(class+deviceClassDevices)] = quantity
		names := []string{resourceapi.ResourceDeviceClassPrefix + class}
		if extended := classes.extendedResource(class); extended != "" {
			names = append(names, extended)
		}
		for _, name := range names {
			asRequest := corev1.ResourceName(requestsPrefix + name)
			left := quantity.DeepCopy()
			left.Sub(byPod[asRequest]) // the pod is charged for these itself
			if left.Sign() > 0 {
				sum := used[asRequest]
				sum.Add(left)
				used[asRequest] = sum
			}
		}
	}
	return used
}

// devicesByClass that a claim can get at most, by name of the device class.
func devicesByClass(claim *resourceapi.ResourceClaim) map[string]int64 {
	total := map[string]int64{}
	for i := range claim.Spec.Devices.Requests {
		request := &claim.Spec.Devices.Requests[i]
		if exact := request.Exactly; exact != nil {
			total[exact.DeviceClassName] += devices(exact.AllocationMode, exact.Count)
		}
		// One of the alternatives will be allocated.
		most := map[string]int64{}
		for j := range request.FirstAvailable {
			alternative := &request.FirstAvailable[j]
			n := devices(alternative.AllocationMode, alternative.Count)
			most[alternative.DeviceClassName] = max(most[alternative.DeviceClassName], n)
		}
		for class, n := range most {
			total[class] += n
		}
	}
	return total
}

func devices(mode resourceapi.DeviceAllocationMode, count int64) int64 {
	switch mode {
	case resourceapi.DeviceAllocationModeExactCount:
		return count
	case resourceapi.DeviceAllocationModeAll:
		return resourceapi.AllocationResultsMaxSize
	}
	return 0
}

// extendedOwner of a claim that was made for the extended resources of a pod; nil for others.
func extendedOwner(claim *resourceapi.ResourceClaim) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(claim)
	if claim.Annotations[resourceapi.ExtendedResourceClaimAnnotation] != "true" ||
		owner == nil || owner.APIVersion != "v1" || owner.Kind != "Pod" {
		return nil
	}
	return owner
}

// extendedClaimPod is the pod whose extended resources the claim provides; nil if there is none.
func (c *quotaController) extendedClaimPod(claim *resourceapi.ResourceClaim, claims cache.Indexer) *corev1.Pod {
	owner := extendedOwner(claim)
	monitor, ok := c.monitors.Get(pods.GroupResource())
	if owner == nil || !ok {
		return nil
	}
	stored, found, err := monitor.Informer.Indexer().GetByKey(cache.NewObjectName(claim.Namespace, owner.Name).String())
	pod, isPod := stored.(*corev1.Pod)
	if err != nil || !found || !isPod || pod.UID != owner.UID {
		return nil
	}
	if status := pod.Status.ExtendedResourceClaimStatus; status != nil {
		if status.ResourceClaimName != claim.Name {
			return nil
		}
		return pod
	}
	if firstClaim(claims, claim, owner.UID) {
		return pod
	}
	return nil
}

// firstClaim tells whether of all claims for a pod's extended resources claim is
// the oldest, by name if there are several.
func firstClaim(claims cache.Indexer, claim *resourceapi.ResourceClaim, pod types.UID) bool {
	others, err := claims.ByIndex(extendedClaimOwner, string(pod))
	if err != nil {
		return false
	}
	for _, object := range others {
		other, ok := object.(*resourceapi.ResourceClaim)
		if !ok || other.Namespace != claim.Namespace {
			continue
		}
		if cmp.Or(other.CreationTimestamp.Compare(claim.CreationTimestamp.Time), strings.Compare(other.Name, claim.Name)) < 0 {
			return false
		}
	}
	return true
}
