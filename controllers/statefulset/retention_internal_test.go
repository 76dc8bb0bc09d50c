package statefulset

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

var testKey = cache.NewObjectName("ns", "web")

func TestRetentionOf(t *testing.T) {
	t.Parallel()
	keep, drop := appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	tests := []struct {
		policy *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy
		want   retention
		known  bool
	}{
		{nil, retention{}, true},
		{&appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: keep, WhenDeleted: drop}, retention{whenDeleted: true}, true},
		{&appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: drop, WhenDeleted: keep}, retention{whenScaled: true}, true},
		{&appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: drop, WhenDeleted: "Archive"}, retention{}, false},
		{&appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}, retention{}, false},
	}
	for _, test := range tests {
		got, known := retentionOf(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{PersistentVolumeClaimRetentionPolicy: test.policy}})
		if got != test.want || known != test.known {
			t.Errorf("%v: %+v, %t", test.policy, got, known)
		}
	}
}

// reference parses [plain ]KIND/UID. The set and the pod are Set and Pod.
func reference(text string) metav1.OwnerReference {
	text, plain := strings.CutPrefix(text, "plain ")
	kind, uid, _ := strings.Cut(text, "/")
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: types.UID(uid), Controller: ptr.To(!plain)}
	switch kind {
	case "Set":
		ref.APIVersion, ref.Kind, ref.Name = "apps/v1", "StatefulSet", "web"
	case "Pod":
		ref.Kind, ref.Name = "Pod", "web-1"
	}
	return ref
}

func TestClaimOwners(t *testing.T) {
	t.Parallel()
	const retains, deleted, scaled, both = "Retain/Retain", "Retain/Delete", "Delete/Retain", "Delete/Delete"
	policies := map[string]retention{
		retains: {}, deleted: {whenDeleted: true}, scaled: {whenScaled: true}, both: {whenScaled: true, whenDeleted: true},
	}
	tests := []struct {
		policy     string
		scaledAway bool
		refs       string // separated by commas
		// want are the references afterwards; "aligned" if nothing is to be done.
		want string
	}{
		{retains, false, "", "aligned"},
		{retains, false, "Set/set", ""},
		{retains, false, "plain Set/set", ""},
		{retains, true, "Pod/pod", ""},
		{retains, false, "Map/m", "aligned"},
		{retains, false, "Map/m,plain Set/set", "Map/m"},
		{deleted, false, "", "Set/set"},
		{deleted, false, "Set/set", "aligned"},
		{deleted, true, "", "Set/set"},
		{deleted, true, "Pod/pod", "Set/set"},
		{deleted, false, "plain Set/set", "Set/set"},
		{scaled, false, "", "aligned"},
		{scaled, false, "Pod/pod", ""},
		{scaled, false, "Set/set", ""},
		{scaled, true, "", "Pod/pod"},
		{scaled, true, "Set/set", "Pod/pod"},
		{scaled, true, "Pod/pod", "aligned"},
		{both, false, "", "Set/set"},
		{both, false, "Pod/pod", "Set/set"},
		{both, true, "Set/set", "Pod/pod"},
		{both, true, "Set/set,plain Pod/pod", "Pod/pod"},
		{both, true, "Pod/pod", "aligned"},
		// What others have there stays.
		{both, false, "plain Map/m", "plain Map/m,Set/set"},
		// Others control it: hands off, but for what is ours.
		{both, false, "Map/m", "aligned"},
		{both, false, "Map/m,plain Set/set", "Map/m"},
		// An earlier set or pod: it is about to go.
		{both, false, "Set/earlier", "aligned"},
		{both, true, "Pod/earlier", "aligned"},
		{retains, true, "Pod/earlier", "aligned"},
	}
	set := testSet(1)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "pod"}}
	for _, test := range tests {
		policy := policies[test.policy]
		claim := &v1.PersistentVolumeClaim{}
		for text := range strings.SplitSeq(test.refs, ",") {
			if text != "" {
				claim.OwnerReferences = append(claim.OwnerReferences, reference(text))
			}
		}
		before := claim.DeepCopy()
		got := "aligned"
		if !policy.aligned(claim, set, pod, test.scaledAway) {
			changed := policy.align(claim, set, pod, test.scaledAway)
			if !policy.aligned(changed, set, pod, test.scaledAway) {
				t.Errorf("%+v: not aligned afterwards", test)
			}
			var refs []string
			for _, ref := range changed.OwnerReferences {
				kind := map[string]string{"StatefulSet": "Set", "Pod": "Pod", "ConfigMap": "Map"}[ref.Kind]
				text := kind + "/" + string(ref.UID)
				if !ptr.Deref(ref.Controller, false) {
					text = "plain " + text
				}
				refs = append(refs, text)
			}
			got = strings.Join(refs, ",")
		}
		if got != test.want {
			t.Errorf("%+v: %q", test, got)
		}
		if !reflect.DeepEqual(before, claim) {
			t.Errorf("%+v: the claim itself was changed", test)
		}
	}
}

func TestNewClaim(t *testing.T) {
	t.Parallel()
	set := testSet(1)
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	template := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	claim := newClaim(set, template, 4)
	if claim.Name != "data-web-4" || claim.Namespace != "ns" || claim.Labels["app"] != "web" {
		t.Errorf("claim %v", claim)
	}
	claim.Labels["app"] = "changed"
	if set.Spec.Selector.MatchLabels["app"] != "web" || template.Labels != nil {
		t.Error("the set was changed")
	}
	template.Labels = map[string]string{"app": "template", "more": "labels"}
	if got := newClaim(set, template, 0).Labels; got["app"] != "web" || got["more"] != "labels" || template.Labels["app"] != "template" {
		t.Errorf("labels %v", got)
	}
}

func TestNewPodKeepsOtherVolumes(t *testing.T) {
	t.Parallel()
	set := testSet(1)
	set.Spec.ServiceName = "svc"
	set.Spec.VolumeClaimTemplates = []v1.PersistentVolumeClaim{
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, {ObjectMeta: metav1.ObjectMeta{Name: "a"}},
	}
	set.Spec.Template.Labels = map[string]string{"app": "web"}
	set.Spec.Template.Spec = v1.PodSpec{Hostname: "other", Subdomain: "other", Volumes: []v1.Volume{{Name: "a"}, {Name: "tmp"}}}
	before := set.DeepCopy()
	pod, err := newPod(set, 3, version{name: "rev", template: &set.Spec.Template})
	if err != nil {
		t.Fatal(err)
	}
	var volumes []string
	for _, volume := range pod.Spec.Volumes {
		volumes = append(volumes, volume.Name)
	}
	if strings.Join(volumes, " ") != "b a tmp" || !hasStorage(set, pod, 3) || hasStorage(set, pod, 2) || !hasIdentity(pod) {
		t.Errorf("volumes %v", volumes)
	}
	if pod.Name != "web-3" || pod.Spec.Hostname != "web-3" || pod.Spec.Subdomain != "svc" || revisionOf(pod) != "rev" {
		t.Errorf("pod %v", pod)
	}
	if !reflect.DeepEqual(before, set) {
		t.Error("the set was changed")
	}
	set.Spec.Template.Labels = nil
	if _, err := newPod(set, 3, version{name: "rev", template: &set.Spec.Template}); err == nil {
		t.Error("a pod without labels")
	}
}
