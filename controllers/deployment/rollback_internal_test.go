package deployment

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
)

func TestLastRevision(t *testing.T) {
	for name, test := range map[string]struct {
		sets []*appsv1.ReplicaSet
		want int64
	}{
		"none":         {nil, 0},
		"only one":     {[]*appsv1.ReplicaSet{ofRevision(set("new", 0, 1, 1), 4)}, 0},
		"the second":   {[]*appsv1.ReplicaSet{ofRevision(set("a", 3, 0, 0), 2), ofRevision(set("new", 2, 1, 1), 5), ofRevision(set("c", 1, 0, 0), 4)}, 4},
		"in any order": {[]*appsv1.ReplicaSet{ofRevision(set("a", 3, 0, 0), 5), ofRevision(set("new", 2, 1, 1), 2), ofRevision(set("c", 1, 0, 0), 4)}, 4},
		"an unreadable one is skipped": {[]*appsv1.ReplicaSet{
			annotatedSet(set("a", 3, 0, 0), revisionAnnotation, "x"), ofRevision(set("new", 2, 1, 1), 2)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newRollout(rolling(1, "1", "0"), test.sets...).lastRevision(); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestApplyRevision(t *testing.T) {
	for name, test := range map[string]struct {
		sets     []*appsv1.ReplicaSet
		revision int64
		image    string
		event    string
	}{
		"a certain one": {[]*appsv1.ReplicaSet{ofRevision(set("old", 2, 0, 0), 1), ofRevision(set("new", 1, 1, 1), 2)}, 1, "old",
			`Normal DeploymentRollback Rolled back deployment "web" to revision 1`},
		"the last one": {[]*appsv1.ReplicaSet{ofRevision(set("old", 2, 0, 0), 3), ofRevision(set("new", 1, 1, 1), 7)}, 0, "old",
			`Normal DeploymentRollback Rolled back deployment "web" to revision 3`},
		"no last one": {[]*appsv1.ReplicaSet{ofRevision(set("new", 1, 1, 1), 1)}, 0, "new",
			"Warning DeploymentRollbackRevisionNotFound Unable to find last revision."},
		"one that is gone": {[]*appsv1.ReplicaSet{ofRevision(set("new", 1, 1, 1), 2)}, 1, "new",
			"Warning DeploymentRollbackRevisionNotFound Unable to find the revision to rollback to."},
		"the present one": {[]*appsv1.ReplicaSet{ofRevision(set("new", 1, 1, 1), 2)}, 2, "new",
			`Warning DeploymentRollbackTemplateUnchanged The rollback revision contains the same template as current deployment "web"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRollout(rolling(1, "1", "0"), test.sets...)
			update := r.stored.DeepCopy()
			r.applyRevision(update, test.revision)()
			if got := update.Spec.Template.Spec.Containers[0].Image; got != test.image {
				t.Errorf("image %s, want %s", got, test.image)
			}
			if _, ok := update.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; ok {
				t.Error("the template has the hash label")
			}
			if got := <-r.events.(*record.FakeRecorder).Events; got != test.event {
				t.Errorf("event %q, want %q", got, test.event)
			}
		})
	}
}

func TestRolledBackAnnotations(t *testing.T) {
	d := rolling(1, "1", "0")
	d.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: "{}", revisionAnnotation: "3", "cause": "third", "added": "later"}
	rs := set("old", 1, 0, 0)
	rs.Annotations = map[string]string{
		revisionAnnotation: "1", desiredReplicasAnnotation: "1", maxReplicasAnnotation: "2", revisionHistoryAnnotation: "0", "cause": "first",
	}
	want := map[string]string{corev1.LastAppliedConfigAnnotation: "{}", revisionAnnotation: "3", "cause": "first"}
	if got := rolledBackAnnotations(d, rs); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
