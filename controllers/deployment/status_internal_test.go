package deployment

import (
	"reflect"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// conditionSince has been so for seconds.
func conditionSince(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string, seconds int) appsv1.DeploymentCondition {
	since := metav1.NewTime(now.Add(-time.Duration(seconds) * time.Second))
	return appsv1.DeploymentCondition{
		Type: kind, Status: status, Reason: reason, Message: "as it was", LastUpdateTime: since, LastTransitionTime: since,
	}
}

func TestPlainStatus(t *testing.T) {
	with := func(rs *appsv1.ReplicaSet, ready, observed int, terminating *int32) *appsv1.ReplicaSet {
		rs.Status.ReadyReplicas, rs.Status.ObservedGeneration, rs.Status.TerminatingReplicas = int32(ready), int64(observed), terminating
		return rs
	}
	for name, test := range map[string]struct {
		sets      []*appsv1.ReplicaSet
		gate      bool
		want      appsv1.DeploymentStatus
		available corev1.ConditionStatus
	}{
		"no replica set": {nil, true, appsv1.DeploymentStatus{TerminatingReplicas: ptr.To[int32](0)}, corev1.ConditionFalse},
		"new and old": {[]*appsv1.ReplicaSet{with(set("new", 0, 3, 1), 2, 1, ptr.To[int32](1)), with(set("old", 1, 2, 2), 2, 1, ptr.To[int32](3))}, true,
			appsv1.DeploymentStatus{Replicas: 5, UpdatedReplicas: 3, ReadyReplicas: 4, AvailableReplicas: 3, UnavailableReplicas: 2,
				TerminatingReplicas: ptr.To[int32](4)}, corev1.ConditionTrue},
		"one not seen yet has none terminating": {[]*appsv1.ReplicaSet{with(set("new", 0, 4, 4), 4, 1, ptr.To[int32](1)), with(set("old", 1, 0, 0), 0, 0, nil)}, true,
			appsv1.DeploymentStatus{Replicas: 4, UpdatedReplicas: 4, ReadyReplicas: 4, AvailableReplicas: 4, TerminatingReplicas: ptr.To[int32](1)},
			corev1.ConditionTrue},
		"one that does not say makes it unknown": {[]*appsv1.ReplicaSet{with(set("new", 0, 4, 4), 4, 1, ptr.To[int32](1)), with(set("old", 1, 0, 0), 0, 1, nil)}, true,
			appsv1.DeploymentStatus{Replicas: 4, UpdatedReplicas: 4, ReadyReplicas: 4, AvailableReplicas: 4}, corev1.ConditionTrue},
		"not asked for": {[]*appsv1.ReplicaSet{with(set("new", 0, 4, 2), 4, 1, ptr.To[int32](1))}, false,
			appsv1.DeploymentStatus{Replicas: 4, UpdatedReplicas: 4, ReadyReplicas: 4, AvailableReplicas: 2, UnavailableReplicas: 2}, corev1.ConditionFalse},
		"more available than wanted": {[]*appsv1.ReplicaSet{with(set("new", 0, 4, 6), 6, 1, nil)}, false,
			appsv1.DeploymentStatus{Replicas: 4, UpdatedReplicas: 4, ReadyReplicas: 6, AvailableReplicas: 6}, corev1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			d := rolling(4, "1", "1")
			d.Status.CollisionCount = ptr.To[int32](2)
			d.Status.TerminatingReplicas = ptr.To[int32](9)
			r := newRollout(d, test.sets...)
			r.terminatingReplicas = test.gate
			r.plainStatus()
			if got := conditionOf(&r.d.Status, appsv1.DeploymentAvailable); got == nil || got.Status != test.available {
				t.Errorf("Available is %v, want %s", got, test.available)
			}
			got := r.d.Status
			got.Conditions = nil
			test.want.ObservedGeneration, test.want.CollisionCount = 2, ptr.To[int32](2)
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// Counts may wait for a moment; what somebody waits for may not.
func TestOnlyCountsDiffer(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*appsv1.Deployment)
		want   bool
	}{
		"more ready": {func(d *appsv1.Deployment) { d.Status.ReadyReplicas++ }, true},
		"complete": {func(d *appsv1.Deployment) {
			d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = 4, 4, 4
		}, false},
		"the generation":      {func(d *appsv1.Deployment) { d.Status.ObservedGeneration++ }, false},
		"the revision":        {func(d *appsv1.Deployment) { d.Annotations = map[string]string{revisionAnnotation: "2"} }, false},
		"the collision count": {func(d *appsv1.Deployment) { d.Status.CollisionCount = ptr.To[int32](1) }, false},
		"a condition's status": {func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{conditionSince(appsv1.DeploymentProgressing, corev1.ConditionFalse, "x", 0)}
		}, false},
		"a condition's reason": {func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{conditionSince(appsv1.DeploymentProgressing, corev1.ConditionTrue, "y", 0)}
		}, false},
		"a condition's time": {func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{conditionSince(appsv1.DeploymentProgressing, corev1.ConditionTrue, "x", 0)}
		}, true},
		"another condition": {func(d *appsv1.Deployment) {
			d.Status.Conditions = []appsv1.DeploymentCondition{conditionSince(appsv1.DeploymentAvailable, corev1.ConditionTrue, "x", 0)}
		}, false},
		"one condition less": {func(d *appsv1.Deployment) { d.Status.Conditions = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := rolling(4, "1", "1")
			d.Status = appsv1.DeploymentStatus{Replicas: 4, UpdatedReplicas: 2, ObservedGeneration: 2,
				Conditions: []appsv1.DeploymentCondition{conditionSince(appsv1.DeploymentProgressing, corev1.ConditionTrue, "x", 5)}}
			r := newRollout(d)
			test.change(r.d)
			if got := r.onlyCountsDiffer(); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

// From one reason to go on to another nobody waits; to and from any other somebody may.
func TestOnlyCountsDiffer_Reasons(t *testing.T) {
	onTheWay := []string{reasonNewReplicaSetCreated, reasonFoundNewReplicaSet, reasonReplicaSetUpdated}
	others := []string{
		reasonNewReplicaSetAvailable, reasonProgressDeadlineExceeded, reasonPaused, reasonResumed, reasonReplicaSetCreateError,
	}
	all := slices.Concat(onTheWay, others)
	for _, before := range all {
		for _, after := range all {
			d := rolling(4, "1", "1")
			d.Status.Conditions = []appsv1.DeploymentCondition{conditionSince(appsv1.DeploymentProgressing, corev1.ConditionTrue, before, 5)}
			r := newRollout(d)
			r.d.Status.Conditions = []appsv1.DeploymentCondition{conditionSince(appsv1.DeploymentProgressing, corev1.ConditionTrue, after, 0)}
			want := before == after || slices.Contains(onTheWay, before) && slices.Contains(onTheWay, after)
			if got := r.onlyCountsDiffer(); got != want {
				t.Errorf("from %s to %s: %t", before, after, got)
			}
		}
	}
}

func TestHasArrived(t *testing.T) {
	complete := func(terminating *int32) appsv1.DeploymentStatus {
		return appsv1.DeploymentStatus{
			Replicas: 4, UpdatedReplicas: 4, ReadyReplicas: 4, AvailableReplicas: 4, ObservedGeneration: 2, TerminatingReplicas: terminating,
		}
	}
	short := complete(nil)
	short.AvailableReplicas = 3
	for name, test := range map[string]struct {
		before, now appsv1.DeploymentStatus
		want        bool
	}{
		"complete now":                    {short, complete(nil), true},
		"not any more":                    {complete(nil), short, false},
		"not yet":                         {short, short, false},
		"pods terminate":                  {complete(ptr.To[int32](5)), complete(ptr.To[int32](3)), false},
		"the last one has terminated":     {complete(ptr.To[int32](5)), complete(ptr.To[int32](0)), true},
		"it is not known any more":        {complete(ptr.To[int32](5)), complete(nil), true},
		"none have terminated all along":  {complete(ptr.To[int32](0)), complete(ptr.To[int32](0)), false},
		"complete, and pods terminate on": {short, complete(ptr.To[int32](3)), true},
	} {
		t.Run(name, func(t *testing.T) {
			d := rolling(4, "1", "1")
			d.Status = test.before
			r := newRollout(d)
			r.d.Status = test.now
			if got := r.hasArrived(); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestPacer(t *testing.T) {
	web := cache.NewObjectName("a", "web")
	p := newPacer()
	for _, step := range []struct {
		name string
		at   time.Duration
		want time.Duration
	}{
		{"a moment after the write", 300 * time.Millisecond, 700 * time.Millisecond},
		{"later in the second", 900 * time.Millisecond, 100 * time.Millisecond},
		{"a clock that was set back", -time.Hour, 0},
	} {
		p.wrote(web, now)
		if got := p.wait(web, now.Add(step.at)); got != step.want {
			t.Errorf("%s: wait %s, want %s", step.name, got, step.want)
		}
	}
	p.wrote(web, now)
	if got := p.wait(web, now.Add(time.Second)); got != 0 || len(p.last) != 0 {
		t.Errorf("after a second: wait %s, %d remembered", got, len(p.last))
	}
	p.wrote(web, now)
	if p.forget(web); len(p.last) != 0 {
		t.Error("a deleted one is remembered")
	}
}
