package resourcequota

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/utils/ptr"
)

func requirements(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

func TestPodUsage(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	deleted := metav1.NewTime(now.Add(-30 * time.Second))
	always := corev1.ContainerRestartPolicyAlways
	for name, test := range map[string]struct {
		pod        corev1.Pod
		noPodLevel bool
		want       corev1.ResourceList
	}{
		"nothing requested": {corev1.Pod{}, false, list("count/pods", "1", "pods", "1")},
		"requests and limits of all kinds": {
			corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: requirements(
				list("cpu", "1", "memory", "1Gi", "ephemeral-storage", "2Gi", "hugepages-2Mi", "4Mi", "example.com/gpu", "2",
					"deviceclass.resource.kubernetes.io/c", "3", "kubernetes.io/odd", "1", "requests.example.com/odd", "1"),
				list("cpu", "2", "memory", "2Gi", "ephemeral-storage", "3Gi", "example.com/gpu", "2"))}}}}, false,
			list("count/pods", "1", "pods", "1", "cpu", "1", "requests.cpu", "1", "memory", "1Gi", "requests.memory", "1Gi",
				"ephemeral-storage", "2Gi", "requests.ephemeral-storage", "2Gi", "hugepages-2Mi", "4Mi", "requests.hugepages-2Mi", "4Mi",
				"requests.example.com/gpu", "2", "requests.deviceclass.resource.kubernetes.io/c", "3",
				"limits.cpu", "2", "limits.memory", "2Gi", "limits.ephemeral-storage", "3Gi"),
		},
		"sidecars and overhead": {
			corev1.Pod{Spec: corev1.PodSpec{
				Overhead:       list("cpu", "100m"),
				InitContainers: []corev1.Container{{Name: "s", RestartPolicy: &always, Resources: requirements(list("cpu", "1"), nil)}},
				Containers:     []corev1.Container{{Name: "c", Resources: requirements(list("cpu", "1"), nil)}},
			}}, false, list("count/pods", "1", "pods", "1", "cpu", "2100m", "requests.cpu", "2100m"),
		},
		"a resize under way": {
			corev1.Pod{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: requirements(list("cpu", "1"), nil)}}},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
					Name: "c", Resources: ptr.To(requirements(list("cpu", "3"), nil)),
				}}},
			}, false, list("count/pods", "1", "pods", "1", "cpu", "3", "requests.cpu", "3"),
		},
		"resources of the pod": {
			corev1.Pod{Spec: corev1.PodSpec{
				Resources:  ptr.To(requirements(list("cpu", "5"), nil)),
				Containers: []corev1.Container{{Resources: requirements(list("cpu", "1"), nil)}},
			}}, false, list("count/pods", "1", "pods", "1", "cpu", "5", "requests.cpu", "5"),
		},
		"resources of the pod do not count": {
			corev1.Pod{Spec: corev1.PodSpec{
				Resources:  ptr.To(requirements(list("cpu", "5"), nil)),
				Containers: []corev1.Container{{Resources: requirements(list("cpu", "1"), nil)}},
			}}, true, list("count/pods", "1", "pods", "1", "cpu", "1", "requests.cpu", "1"),
		},
		"failed":    {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}, false, list("count/pods", "1")},
		"succeeded": {corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, false, list("count/pods", "1")},
		"being deleted, in time": {
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted, DeletionGracePeriodSeconds: ptr.To[int64](30)}},
			false, list("count/pods", "1", "pods", "1"),
		},
		"being deleted, overdue": {
			corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted, DeletionGracePeriodSeconds: ptr.To[int64](29)}},
			false, list("count/pods", "1"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := podUsage(&test.pod, !test.noPodLevel, now); !quota.Equals(got, test.want) {
				t.Errorf("usage %v, want %v", got, test.want)
			}
		})
	}
}

func TestNamesOfPods(t *testing.T) {
	t.Parallel()
	for name, want := range map[corev1.ResourceName]bool{
		"pods": true, "count/pods": true, "cpu": true, "requests.memory": true, "limits.ephemeral-storage": true,
		"hugepages-1Gi": true, "requests.hugepages-1Gi": true, "requests.example.com/gpu": true,
		"requests.deviceclass.resource.kubernetes.io/c": true, "requests.kubernetes.io/x": false, "requests.storage": false,
		"example.com/gpu": false, "limits.example.com/gpu": false, "count/services": false,
		"gold.storageclass.storage.k8s.io/requests.storage": false,
	} {
		if got := ofPods(name); got != want {
			t.Errorf("%s is of pods: %v", name, got)
		}
	}
}

func TestSelects(t *testing.T) {
	t.Parallel()
	long := "a-class-with-a-name-that-is-longer-than-any-label-value-may-be-which-is-sixty-three-characters"
	for _, test := range []struct {
		operator corev1.ScopeSelectorOperator
		values   []string
		value    string
		want     bool
	}{
		{corev1.ScopeSelectorOpExists, nil, "high", true},
		{corev1.ScopeSelectorOpExists, nil, "", false},
		{corev1.ScopeSelectorOpDoesNotExist, nil, "high", false},
		{corev1.ScopeSelectorOpDoesNotExist, nil, "", true},
		{corev1.ScopeSelectorOpIn, []string{"low", "high"}, "high", true},
		{corev1.ScopeSelectorOpIn, []string{"low"}, "high", false},
		{corev1.ScopeSelectorOpIn, []string{"low"}, "", false},
		{corev1.ScopeSelectorOpIn, []string{long}, long, true},
		{corev1.ScopeSelectorOpNotIn, []string{"low"}, "high", true},
		{corev1.ScopeSelectorOpNotIn, []string{"high"}, "high", false},
		{corev1.ScopeSelectorOpNotIn, []string{"low"}, "", true},
		{"Odd", nil, "high", false},
	} {
		r := corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: test.operator, Values: test.values}
		if got := selects(r, test.value); got != test.want {
			t.Errorf("%s %v selects %q: %v", test.operator, test.values, test.value, got)
		}
	}
}

func TestBestEffort(t *testing.T) {
	t.Parallel()
	container := func(requests, limits corev1.ResourceList) []corev1.Container {
		return []corev1.Container{{Resources: requirements(requests, limits)}}
	}
	for name, test := range map[string]struct {
		pod        corev1.Pod
		noPodLevel bool
		want       bool
	}{
		"nothing":           {corev1.Pod{}, false, true},
		"zero":              {corev1.Pod{Spec: corev1.PodSpec{Containers: container(list("cpu", "0"), nil)}}, false, true},
		"other resources":   {corev1.Pod{Spec: corev1.PodSpec{Containers: container(list("example.com/gpu", "1"), nil)}}, false, true},
		"a request":         {corev1.Pod{Spec: corev1.PodSpec{Containers: container(list("memory", "1"), nil)}}, false, false},
		"a limit":           {corev1.Pod{Spec: corev1.PodSpec{Containers: container(nil, list("cpu", "1"))}}, false, false},
		"an init container": {corev1.Pod{Spec: corev1.PodSpec{InitContainers: container(list("cpu", "1"), nil)}}, false, false},
		"the pod": {corev1.Pod{Spec: corev1.PodSpec{
			Resources: ptr.To(requirements(list("cpu", "1"), nil)),
		}}, false, false},
		"the pod, without the gate": {corev1.Pod{Spec: corev1.PodSpec{
			Resources: ptr.To(requirements(list("cpu", "1"), nil)),
		}}, true, true},
		"the pod decides alone": {corev1.Pod{Spec: corev1.PodSpec{
			Resources: ptr.To(requirements(list("cpu", "0"), nil)), Containers: container(list("cpu", "1"), nil),
		}}, false, true},
		"the status decides": {corev1.Pod{
			Spec: corev1.PodSpec{Containers: container(list("cpu", "1"), nil)}, Status: corev1.PodStatus{QOSClass: corev1.PodQOSBestEffort},
		}, false, true},
	} {
		if got := bestEffort(&test.pod, !test.noPodLevel); got != test.want {
			t.Errorf("%s: best effort %v", name, got)
		}
	}
}

func TestPodFrees(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	// running is a pod that asks for some cpu, and whose node gives it some.
	running := func(asked, given string, conditions ...corev1.PodCondition) corev1.Pod {
		return corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: requirements(list("cpu", asked), nil)}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: conditions, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "c", AllocatedResources: list("cpu", given), Resources: ptr.To(requirements(list("cpu", given), nil))},
			}},
		}
	}
	sidecar := func(given string) corev1.Pod {
		p := running("1", "1")
		p.Spec.InitContainers = []corev1.Container{{
			Name: "i", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: requirements(list("cpu", "1"), nil),
		}}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "i", Resources: ptr.To(requirements(list("cpu", given), nil))}}
		return p
	}
	whole := func(cpu string) corev1.Pod {
		p := running("1", "1")
		p.Spec.Resources = ptr.To(requirements(list("cpu", cpu), nil))
		return p
	}
	infeasible := corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}
	deferred := infeasible
	deferred.Reason = corev1.PodReasonDeferred
	failed := corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}
	for name, test := range map[string]struct {
		before, after corev1.Pod
		want          bool
	}{
		"nothing":                    {corev1.Pod{}, corev1.Pod{}, false},
		"runs":                       {corev1.Pod{}, corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}, false},
		"ends":                       {corev1.Pod{}, failed, true},
		"had ended":                  {failed, failed, false},
		"has an end":                 {corev1.Pod{}, corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: ptr.To[int64](1)}}, true},
		"has another end":            {corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: ptr.To[int64](2)}}, corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: ptr.To[int64](1)}}, false},
		"has shrunk":                 {running("1", "2"), running("1", "1"), true},
		"same size":                  {running("1", "1"), running("1", "1000m"), false},
		"first status":               {corev1.Pod{Spec: running("1", "1").Spec}, running("1", "1"), false},
		"smaller than asked for":     {running("2", "2"), running("2", "1"), false},
		"a sidecar has shrunk":       {sidecar("2"), sidecar("1"), true},
		"a resize is deferred":       {running("3", "1"), running("3", "1", deferred), false},
		"a resize is infeasible":     {running("3", "1"), running("3", "1", infeasible), true},
		"a resize is feasible":       {running("3", "1", infeasible), running("3", "1"), true},
		"the pod as a whole shrinks": {whole("3"), whole("2"), true},
	} {
		if got := podFrees(&test.before, &test.after, true, now); got != test.want {
			t.Errorf("%s: frees %v", name, got)
		}
	}
	if before, after := whole("3"), whole("2"); podFrees(&before, &after, false, now) {
		t.Error("resources of the pod as a whole count without their feature gate")
	}
}

func TestServiceUsage(t *testing.T) {
	t.Parallel()
	ports := []corev1.ServicePort{{Port: 1}, {Port: 2, NodePort: 30000}}
	for name, test := range map[string]struct {
		spec                 corev1.ServiceSpec
		ports, loadBalancers string
	}{
		"cluster IP":    {corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: ports}, "0", "0"},
		"external name": {corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}, "0", "0"},
		"node port":     {corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: ports}, "2", "0"},
		"load balancer": {corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports}, "2", "1"},
		"load balancer that allocates": {
			corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports, AllocateLoadBalancerNodePorts: ptr.To(true)}, "2", "1",
		},
		"load balancer that does not": {
			corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: ports, AllocateLoadBalancerNodePorts: ptr.To(false)}, "1", "1",
		},
	} {
		want := list("services", "1", "count/services", "1", "services.nodeports", test.ports, "services.loadbalancers", test.loadBalancers)
		if got := serviceUsage(&corev1.Service{Spec: test.spec}); !quota.Equals(got, want) {
			t.Errorf("%s: usage %v, want %v", name, got, want)
		}
	}
}

func TestClaimUsage(t *testing.T) {
	t.Parallel()
	claim := func(storage string, allocated corev1.ResourceList, class *string, annotations map[string]string) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
		c.Spec.StorageClassName = class
		if storage != "" {
			c.Spec.Resources.Requests = list("storage", storage)
		}
		c.Status.AllocatedResources = allocated
		return c
	}
	counts := func(more ...string) corev1.ResourceList {
		return quota.Add(list("persistentvolumeclaims", "1", "count/persistentvolumeclaims", "1"), list(more...))
	}
	for name, test := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		want  corev1.ResourceList
	}{
		"no request":        {claim("", nil, nil, nil), counts()},
		"request":           {claim("1Gi", nil, nil, nil), counts("requests.storage", "1Gi")},
		"more is allocated": {claim("1Gi", list("storage", "2Gi"), nil, nil), counts("requests.storage", "2Gi")},
		"less is allocated": {claim("2Gi", list("storage", "1Gi"), nil, nil), counts("requests.storage", "2Gi")},
		"a fraction":        {claim("1500m", nil, nil, nil), counts("requests.storage", "2")},
		"a class": {claim("1Gi", nil, ptr.To("gold"), nil), counts("requests.storage", "1Gi",
			"gold.storageclass.storage.k8s.io/requests.storage", "1Gi", "gold.storageclass.storage.k8s.io/persistentvolumeclaims", "1")},
		"the annotation goes first": {claim("1Gi", nil, ptr.To("gold"), map[string]string{corev1.BetaStorageClassAnnotation: "tin"}),
			counts("requests.storage", "1Gi", "tin.storageclass.storage.k8s.io/requests.storage", "1Gi",
				"tin.storageclass.storage.k8s.io/persistentvolumeclaims", "1")},
	} {
		if got := claimUsage(test.claim); !quota.Equals(got, test.want) {
			t.Errorf("%s: usage %v, want %v", name, got, test.want)
		}
		if request := test.claim.Spec.Resources.Requests["storage"]; name == "a fraction" && request.Cmp(resource.MustParse("1500m")) != 0 {
			t.Errorf("the claim was changed to %s", request.String())
		}
	}
}

func TestClaimScope(t *testing.T) {
	t.Parallel()
	some := &corev1.PersistentVolumeClaim{}
	some.Spec.VolumeAttributesClassName = ptr.To("a")
	some.Status.CurrentVolumeAttributesClassName = ptr.To("b")
	some.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: "a"}
	none := &corev1.PersistentVolumeClaim{}
	none.Spec.VolumeAttributesClassName = ptr.To("")
	if got := attributesClasses(some); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("classes %v", got)
	}
	for _, test := range []struct {
		claim    *corev1.PersistentVolumeClaim
		scope    corev1.ResourceQuotaScope
		operator corev1.ScopeSelectorOperator
		values   []string
		want     bool
	}{
		{some, corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ScopeSelectorOpExists, nil, true},
		{none, corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ScopeSelectorOpExists, nil, false},
		{some, corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ScopeSelectorOpIn, []string{"b"}, true},
		{some, corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ScopeSelectorOpIn, []string{"c"}, false},
		{some, corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ScopeSelectorOpNotIn, []string{"b"}, true},
		{none, corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ScopeSelectorOpNotIn, []string{"b"}, true},
		{none, corev1.ResourceQuotaScopeVolumeAttributesClass, corev1.ScopeSelectorOpDoesNotExist, nil, true},
		{some, corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpExists, nil, false},
	} {
		r := corev1.ScopedResourceSelectorRequirement{ScopeName: test.scope, Operator: test.operator, Values: test.values}
		if got, err := claimInScope(r, test.claim); err != nil || got != test.want {
			t.Errorf("%v: %v %v", r, got, err)
		}
	}
}

func TestCrossesNamespaces(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		affinity *corev1.Affinity
		want     bool
	}{
		"none":  {nil, false},
		"empty": {&corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, PodAntiAffinity: &corev1.PodAntiAffinity{}}, false},
		"own namespace": {&corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: "x"}},
		}}, false},
		"namespaces": {&corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{Namespaces: []string{"other"}}},
		}}, true},
		"preferred": {&corev1.Affinity{PodAffinity: &corev1.PodAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				{PodAffinityTerm: corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}},
			},
		}}, true},
		"anti-affinity": {&corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{NamespaceSelector: &metav1.LabelSelector{}}},
		}}, true},
	} {
		if got := crossesNamespaces(test.affinity); got != test.want {
			t.Errorf("%s: crosses %v", name, got)
		}
	}
}

func TestDevicesByClass(t *testing.T) {
	t.Parallel()
	exactly := func(class string, mode resourceapi.DeviceAllocationMode, count int64) resourceapi.DeviceRequest {
		return resourceapi.DeviceRequest{Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: mode, Count: count}}
	}
	sub := func(class string, count int64) resourceapi.DeviceSubRequest {
		return resourceapi.DeviceSubRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	}
	claim := &resourceapi.ResourceClaim{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
		exactly("c", resourceapi.DeviceAllocationModeExactCount, 3),
		exactly("all", resourceapi.DeviceAllocationModeAll, 0),
		exactly("odd", "Odd", 7),
		{FirstAvailable: []resourceapi.DeviceSubRequest{sub("c", 2), sub("c", 4), sub("d", 1)}},
	}}}}
	want := map[string]int64{"c": 7, "all": 32, "odd": 0, "d": 1}
	if got := devicesByClass(claim); !maps.Equal(got, want) {
		t.Errorf("devices %v, want %v", got, want)
	}
}
