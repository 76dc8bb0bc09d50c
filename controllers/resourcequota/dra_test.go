package resourcequota_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func exactly(class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}
}

func alternative(name, class string, count int64) resourceapi.DeviceSubRequest {
	return resourceapi.DeviceSubRequest{
		Name: name, DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}
}

func (w *world) deviceClass(name string, extended *string) {
	w.t.Helper()
	_, err := w.client.ResourceV1().DeviceClasses().Create(w.t.Context(), &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{ExtendedResourceName: extended},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := w.client.ResourceV1().DeviceClasses().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) claim(name string, request resourceapi.DeviceRequest, change func(*resourceapi.ResourceClaim)) {
	w.t.Helper()
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{request}}},
	}
	if change != nil {
		change(claim)
	}
	if _, err := w.client.ResourceV1().ResourceClaims(w.ns).Create(w.t.Context(), claim, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteClaim(name string) {
	w.t.Helper()
	if err := w.client.ResourceV1().ResourceClaims(w.ns).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func acceptance17(w *world) {
	w.deviceClass("quota-c", ptr.To("example.com/quota-gpu"))
	w.deviceClass("quota-d", nil)
	const (
		ofC, ofD   = "quota-c.deviceclass.resource.k8s.io/devices", "quota-d.deviceclass.resource.k8s.io/devices"
		implicitC  = "requests.deviceclass.resource.kubernetes.io/quota-c"
		implicitD  = "requests.deviceclass.resource.kubernetes.io/quota-d"
		extendedC  = "requests.example.com/quota-gpu"
		countClaim = "count/resourceclaims.resource.k8s.io"
	)
	w.quota("q", amounts{ofC: "99", ofD: "99", implicitC: "99", implicitD: "99", extendedC: "99", countClaim: "9"})
	zero := amounts{ofC: "0", ofD: "0", implicitC: "0", implicitD: "0", extendedC: "0", countClaim: "0"}
	w.used("q", zero)

	w.claim("exact", exactly("quota-c", 3), nil)
	w.recounted("q", amounts{ofC: "3", ofD: "0", implicitC: "3", implicitD: "0", extendedC: "3", countClaim: "1"})
	w.deleteClaim("exact")
	w.recounted("q", zero)

	w.claim("first", resourceapi.DeviceRequest{Name: "r", FirstAvailable: []resourceapi.DeviceSubRequest{
		alternative("a", "quota-c", 2), alternative("b", "quota-c", 4), alternative("c", "quota-d", 1),
	}}, nil)
	w.recounted("q", amounts{ofC: "4", ofD: "1", implicitC: "4", implicitD: "1", extendedC: "4", countClaim: "1"})
	w.deleteClaim("first")

	w.claim("all", resourceapi.DeviceRequest{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "quota-c", AllocationMode: resourceapi.DeviceAllocationModeAll,
	}}, nil)
	w.recounted("q", amounts{ofC: "32", ofD: "0", implicitC: "32", extendedC: "32", countClaim: "1"})
	w.deleteClaim("all")
	w.recounted("q", zero)

	// A claim that the scheduler makes for what a pod is charged for already.
	gpus := amounts{"example.com/quota-gpu": "2"}
	pod := w.pod("p", requesting(gpus), limited(gpus))
	w.recounted("q", amounts{ofC: "0", implicitC: "0", extendedC: "2", countClaim: "0"})
	w.claim("made", exactly("quota-c", 3), func(claim *resourceapi.ResourceClaim) {
		claim.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
	})
	w.recounted("q", amounts{ofC: "3", implicitC: "3", extendedC: "3", countClaim: "1"})
	w.deletePod("p")
	w.recounted("q", amounts{ofC: "3", implicitC: "3", extendedC: "3", countClaim: "1"})
	w.deleteClaim("made")
	w.recounted("q", zero)
}

// recounted has the controller count a quota anew, and waits for what it
// finds; admission has charged it by itself.
func (w *world) recounted(name string, want amounts) {
	w.t.Helper()
	w.used(name, want)
	w.change(name, func(q *corev1.ResourceQuota) {
		if hard, ok := q.Spec.Hard["count/secrets"]; ok {
			hard.Add(amounts{"x": "1"}.list()["x"])
			q.Spec.Hard["count/secrets"] = hard
		} else {
			q.Spec.Hard["count/secrets"] = amounts{"x": "1"}.list()["x"]
		}
	})
	w.counted(name)
	w.used(name, want)
}

func lateDeviceClass(w *world) {
	const extended = "requests.example.com/quota-late"
	w.claim("c", exactly("quota-late", 2), nil)
	w.quota("q", amounts{extended: "9"})
	w.used("q", amounts{extended: "0"})
	w.deviceClass("quota-late", ptr.To("example.com/quota-late"))
	w.used("q", amounts{extended: "2"})
}
