package deployment

import (
	"math"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

func TestCleanUpHistory(t *testing.T) {
	with := func(rs *appsv1.ReplicaSet, change func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
		change(rs)
		return rs
	}
	deleting := func(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp = ptr.To(metav1.NewTime(now)) }
	for name, test := range map[string]struct {
		limit *int32
		sets  []*appsv1.ReplicaSet
		gone  []string
	}{
		"by revision, not by age": {ptr.To[int32](1), []*appsv1.ReplicaSet{
			ofRevision(set("new", 0, 1, 1), 9), ofRevision(set("a", 1, 0, 0), 2), ofRevision(set("b", 2, 0, 0), 10), ofRevision(set("c", 3, 0, 0), 3),
		}, []string{"a", "c"}},
		"by age where revisions are equal or unreadable": {ptr.To[int32](1), []*appsv1.ReplicaSet{
			annotatedSet(set("a", 1, 0, 0), revisionAnnotation, "x"), ofRevision(set("b", 2, 0, 0), 2), ofRevision(set("c", 3, 0, 0), 2),
		}, []string{"c", "b"}},
		"within the limit": {ptr.To[int32](2), []*appsv1.ReplicaSet{set("a", 1, 0, 0), set("b", 2, 0, 0)}, nil},
		"no limit":         {nil, []*appsv1.ReplicaSet{set("a", 1, 0, 0), set("b", 2, 0, 0)}, nil},
		"unlimited":        {ptr.To[int32](math.MaxInt32), []*appsv1.ReplicaSet{set("a", 1, 0, 0)}, nil},
		"none is kept, but the new one": {ptr.To[int32](0), []*appsv1.ReplicaSet{
			ofRevision(set("new", 9, 0, 0), 1), ofRevision(set("a", 1, 0, 0), 2),
		}, []string{"a"}},
		"skipped ones are not replaced by younger ones": {ptr.To[int32](1), []*appsv1.ReplicaSet{
			ofRevision(set("a", 4, 1, 0), 1),
			ofRevision(with(set("b", 3, 0, 0), func(rs *appsv1.ReplicaSet) { rs.Status.Replicas = 1 }), 2),
			ofRevision(with(set("c", 2, 0, 0), func(rs *appsv1.ReplicaSet) { rs.Generation, rs.Status.ObservedGeneration = 2, 1 }), 3),
			ofRevision(set("d", 1, 0, 0), 4),
		}, nil},
		"one that goes already does not count": {ptr.To[int32](1), []*appsv1.ReplicaSet{
			ofRevision(with(set("a", 2, 0, 0), deleting), 1), ofRevision(set("b", 1, 0, 0), 2),
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := rolling(1, "1", "0")
			d.Spec.RevisionHistoryLimit = test.limit
			r := newRollout(d, test.sets...)
			if err := r.cleanUpHistory(t.Context()); err != nil {
				t.Fatal(err)
			}
			var gone []string
			for _, action := range r.client.(*fake.Clientset).Actions() {
				if deletion, ok := action.(kubetesting.DeleteAction); ok {
					gone = append(gone, deletion.GetName())
				}
			}
			if !slices.Equal(gone, test.gone) {
				t.Errorf("deleted %v, want %v", gone, test.gone)
			}
		})
	}
}
