package deployment

import (
	"math"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestSetCondition(t *testing.T) {
	const kind = appsv1.DeploymentProgressing
	before := conditionSince(kind, corev1.ConditionTrue, "x", 60)
	for name, test := range map[string]struct {
		status      corev1.ConditionStatus
		reason      string
		replace     bool
		same, stays bool // the whole, the transition time
	}{
		"the same":             {corev1.ConditionTrue, "x", false, true, true},
		"the same, set anew":   {corev1.ConditionTrue, "x", true, false, true},
		"another reason":       {corev1.ConditionTrue, "y", false, false, true},
		"another status":       {corev1.ConditionFalse, "x", false, false, false},
		"another one set anew": {corev1.ConditionFalse, "y", true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := rolling(1, "1", "0")
			other := conditionSince(appsv1.DeploymentAvailable, corev1.ConditionTrue, "z", 60)
			d.Status.Conditions = []appsv1.DeploymentCondition{before, other}
			r := newRollout(d)
			if test.replace {
				r.replaceCondition(kind, test.status, test.reason, "new")
			} else {
				r.setCondition(kind, test.status, test.reason, "new")
			}
			if test.same {
				if !slices.Equal(r.d.Status.Conditions, d.Status.Conditions) {
					t.Errorf("changed: %v", r.d.Status.Conditions)
				}
				return
			}
			want := appsv1.DeploymentCondition{Type: kind, Status: test.status, Reason: test.reason, Message: "new",
				LastUpdateTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now)}
			if test.stays {
				want.LastTransitionTime = before.LastTransitionTime
			}
			if got := r.d.Status.Conditions; !slices.Equal(got, []appsv1.DeploymentCondition{other, want}) {
				t.Errorf("got %v", got)
			}
			if d.Status.Conditions[0] != before {
				t.Error("the stored condition was changed")
			}
		})
	}
}

func TestSetPauseCondition(t *testing.T) {
	for name, test := range map[string]struct {
		paused   bool
		reason   string
		deadline int32
		want     string // reason, none if nothing is to be told
	}{
		"paused":                   {true, reasonReplicaSetUpdated, 600, reasonPaused},
		"paused from the start":    {true, "", 600, reasonPaused},
		"still paused":             {true, reasonPaused, 600, ""},
		"resumed":                  {false, reasonPaused, 600, reasonResumed},
		"goes on":                  {false, reasonResumed, 600, ""},
		"failed before it paused":  {true, reasonProgressDeadlineExceeded, 600, ""},
		"paused without deadline":  {true, "", math.MaxInt32, ""},
		"resumed without deadline": {false, reasonPaused, math.MaxInt32, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := rolling(1, "1", "0")
			d.Spec.Paused, d.Spec.ProgressDeadlineSeconds = test.paused, &test.deadline
			if test.reason != "" {
				d.Status.Conditions = []appsv1.DeploymentCondition{
					conditionSince(appsv1.DeploymentProgressing, corev1.ConditionTrue, test.reason, 60)}
			}
			r := newRollout(d)
			if got := r.setPauseCondition(); got != (test.want != "") {
				t.Errorf("to be told: %t", got)
			}
			if test.want == "" {
				return
			}
			got := conditionOf(&r.d.Status, appsv1.DeploymentProgressing)
			if got.Status != corev1.ConditionUnknown || got.Reason != test.want || !got.LastUpdateTime.Time.Equal(now) {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestJudgeProgress(t *testing.T) {
	done := appsv1.DeploymentStatus{Replicas: 4, UpdatedReplicas: 4, ReadyReplicas: 4, AvailableReplicas: 4, ObservedGeneration: 2}
	halfway := appsv1.DeploymentStatus{Replicas: 4, UpdatedReplicas: 2, ReadyReplicas: 3, AvailableReplicas: 3, ObservedGeneration: 2}
	with := func(s appsv1.DeploymentStatus, change func(*appsv1.DeploymentStatus)) appsv1.DeploymentStatus {
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		reason        string
		since         int
		before, after appsv1.DeploymentStatus
		want          string
		moved         bool // lastUpdateTime
	}{
		"complete":            {reasonReplicaSetUpdated, 10, halfway, done, reasonNewReplicaSetAvailable, true},
		"complete after time": {reasonProgressDeadlineExceeded, 900, halfway, done, reasonNewReplicaSetAvailable, true},
		"no progress":         {reasonReplicaSetUpdated, 10, halfway, halfway, reasonReplicaSetUpdated, false},
		"updated grew": {reasonReplicaSetUpdated, 10, with(halfway, func(s *appsv1.DeploymentStatus) { s.Replicas--; s.UpdatedReplicas-- }),
			halfway, reasonReplicaSetUpdated, true},
		"old ones shrank": {reasonNewReplicaSetCreated, 10, with(halfway, func(s *appsv1.DeploymentStatus) { s.Replicas++ }),
			halfway, reasonReplicaSetUpdated, true},
		"ready grew": {reasonResumed, 10, with(halfway, func(s *appsv1.DeploymentStatus) { s.ReadyReplicas-- }),
			halfway, reasonReplicaSetUpdated, true},
		"available grew": {reasonReplicaSetUpdated, 10, with(halfway, func(s *appsv1.DeploymentStatus) { s.AvailableReplicas-- }),
			halfway, reasonReplicaSetUpdated, true},
		"counts fell": {reasonReplicaSetUpdated, 10, with(halfway, func(s *appsv1.DeploymentStatus) { s.ReadyReplicas++ }),
			halfway, reasonReplicaSetUpdated, false},
		"at the deadline":            {reasonReplicaSetUpdated, 600, halfway, halfway, reasonReplicaSetUpdated, false},
		"after the deadline":         {reasonReplicaSetUpdated, 601, halfway, halfway, reasonProgressDeadlineExceeded, true},
		"refused for so long":        {reasonReplicaSetCreateError, 601, halfway, halfway, reasonProgressDeadlineExceeded, true},
		"stays exceeded":             {reasonProgressDeadlineExceeded, 10, halfway, halfway, reasonProgressDeadlineExceeded, false},
		"late, but progress":         {reasonReplicaSetUpdated, 900, with(halfway, func(s *appsv1.DeploymentStatus) { s.ReadyReplicas-- }), halfway, reasonReplicaSetUpdated, true},
		"a finished one in need":     {reasonNewReplicaSetAvailable, 900, done, with(done, func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 0 }), reasonNewReplicaSetAvailable, false},
		"a finished one is not late": {reasonNewReplicaSetAvailable, 900, halfway, halfway, reasonNewReplicaSetAvailable, false},
		"no condition yet":           {"", 0, halfway, halfway, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			d := rolling(4, "1", "1")
			d.Status = test.before
			if test.reason != "" {
				status := corev1.ConditionTrue
				if test.reason == reasonProgressDeadlineExceeded {
					status = corev1.ConditionFalse
				}
				d.Status.Conditions = []appsv1.DeploymentCondition{
					conditionSince(appsv1.DeploymentProgressing, status, test.reason, test.since)}
			}
			r := newRollout(d, set("new", 0, 4, 4))
			conditions := r.d.Status.Conditions
			r.d.Status = test.after
			r.d.Status.Conditions = conditions
			r.judgeProgress()
			got := conditionOf(&r.d.Status, appsv1.DeploymentProgressing)
			if got == nil {
				if test.want != "" {
					t.Error("no condition")
				}
				return
			}
			if got.Reason != test.want || got.LastUpdateTime.Time.Equal(now) != test.moved {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestUntilDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		deadline int32
		reason   string
		since    int
		complete bool
		want     time.Duration
	}{
		"ahead":          {600, reasonReplicaSetUpdated, 100, false, 501 * time.Second},
		"past":           {600, reasonReplicaSetUpdated, 700, false, time.Second},
		"none":           {math.MaxInt32, reasonReplicaSetUpdated, 100, false, 0},
		"no condition":   {600, "", 0, false, 0},
		"complete":       {600, reasonReplicaSetUpdated, 100, true, 0},
		"exceeded":       {600, reasonProgressDeadlineExceeded, 100, false, 0},
		"finished once":  {600, reasonNewReplicaSetAvailable, 100, false, 0},
		"just was found": {600, reasonFoundNewReplicaSet, 0, false, 601 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d := rolling(4, "1", "1")
			d.Spec.ProgressDeadlineSeconds = &test.deadline
			if test.complete {
				d.Status = appsv1.DeploymentStatus{Replicas: 4, UpdatedReplicas: 4, AvailableReplicas: 4, ObservedGeneration: 2}
			}
			if test.reason != "" {
				d.Status.Conditions = []appsv1.DeploymentCondition{
					conditionSince(appsv1.DeploymentProgressing, corev1.ConditionTrue, test.reason, test.since)}
			}
			if got := newRollout(d).untilDeadline(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestCopyReplicaFailure(t *testing.T) {
	failing := func(rs *appsv1.ReplicaSet, reason string) *appsv1.ReplicaSet {
		rs.Status.Conditions = []appsv1.ReplicaSetCondition{{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason, Message: rs.Name,
			LastTransitionTime: metav1.NewTime(now.Add(-time.Minute)),
		}}
		return rs
	}
	for name, test := range map[string]struct {
		before     string // reason, 120 s ago
		sets       []*appsv1.ReplicaSet
		want       *appsv1.DeploymentCondition
		transition int
	}{
		"none": {"", []*appsv1.ReplicaSet{set("new", 0, 1, 1)}, nil, 0},
		"over": {"FailedCreate", []*appsv1.ReplicaSet{set("new", 0, 1, 1)}, nil, 0},
		"the new one's": {"", []*appsv1.ReplicaSet{failing(set("new", 0, 1, 1), "FailedCreate"), failing(set("old", 1, 1, 1), "FailedDelete")},
			&appsv1.DeploymentCondition{Reason: "FailedCreate", Message: "new"}, 60},
		"an old one's": {"", []*appsv1.ReplicaSet{set("new", 0, 1, 1), failing(set("old", 1, 1, 1), "FailedDelete")},
			&appsv1.DeploymentCondition{Reason: "FailedDelete", Message: "old"}, 60},
		"without a new one": {"", []*appsv1.ReplicaSet{failing(set("old", 1, 1, 1), "FailedDelete")},
			&appsv1.DeploymentCondition{Reason: "FailedDelete", Message: "old"}, 60},
		"the same": {"FailedCreate", []*appsv1.ReplicaSet{failing(set("new", 0, 1, 1), "FailedCreate")},
			&appsv1.DeploymentCondition{Reason: "FailedCreate", Message: "as it was"}, 120},
		"another reason does not move the transition": {"FailedDelete", []*appsv1.ReplicaSet{failing(set("new", 0, 1, 1), "FailedCreate")},
			&appsv1.DeploymentCondition{Reason: "FailedCreate", Message: "new"}, 120},
	} {
		t.Run(name, func(t *testing.T) {
			d := rolling(1, "1", "0")
			if test.before != "" {
				d.Status.Conditions = []appsv1.DeploymentCondition{
					conditionSince(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, test.before, 120)}
			}
			r := newRollout(d, test.sets...)
			r.copyReplicaFailure()
			got := conditionOf(&r.d.Status, appsv1.DeploymentReplicaFailure)
			switch {
			case test.want == nil && got == nil:
			case test.want == nil || got == nil:
				t.Errorf("got %v, want %v", got, test.want)
			case got.Reason != test.want.Reason || got.Message != test.want.Message || got.Status != corev1.ConditionTrue ||
				!got.LastTransitionTime.Time.Equal(now.Add(-time.Duration(test.transition)*time.Second)):
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestHasDeadline(t *testing.T) {
	for name, test := range map[string]struct {
		seconds *int32
		want    bool
	}{"none": {nil, false}, "endless": {ptr.To[int32](math.MaxInt32), false}, "some": {ptr.To[int32](600), true}} {
		d := rolling(1, "1", "0")
		d.Spec.ProgressDeadlineSeconds = test.seconds
		if got := hasDeadline(d); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}
