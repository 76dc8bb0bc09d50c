package replicationcontroller

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wheelhouse-project/wheelhouse/controllers/replicaset"
)

func TestSelector(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		selector map[string]string
		matches  bool
		invalid  bool
	}{
		{name: "none matches nothing"},
		{name: "empty matches nothing", selector: map[string]string{}},
		{name: "equal", selector: map[string]string{"app": "web"}, matches: true},
		{name: "not equal", selector: map[string]string{"app": "db"}},
		{name: "one of two", selector: map[string]string{"app": "web", "tier": "front"}},
		{name: "invalid", selector: map[string]string{"a b": "web"}, invalid: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			selector, err := kind{}.Selector(&v1.ReplicationController{Spec: v1.ReplicationControllerSpec{Selector: test.selector}})
			if (err != nil) != test.invalid {
				t.Fatalf("error %v", err)
			}
			if err == nil && selector.Matches(labels.Set{"app": "web"}) != test.matches {
				t.Errorf("matches: %t", !test.matches)
			}
		})
	}
}

func TestSpecHasDefaults(t *testing.T) {
	t.Parallel()
	spec := kind{}.Spec(&v1.ReplicationController{})
	if spec.Replicas != 1 || spec.MinReadySeconds != 0 || spec.Template == nil {
		t.Errorf("spec %+v", spec)
	}
}

// What is written is what is read, and the conditions of others stay.
func TestStatusIsReadAsWritten(t *testing.T) {
	t.Parallel()
	foreign := v1.ReplicationControllerCondition{Type: "Foreign", Status: v1.ConditionTrue}
	rc := &v1.ReplicationController{}
	rc.Status.Conditions = []v1.ReplicationControllerCondition{
		{Type: v1.ReplicationControllerReplicaFailure, Status: v1.ConditionTrue, Reason: "Old"}, foreign,
	}
	before := rc.DeepCopy()
	for _, failure := range []*replicaset.Failure{nil, {Status: v1.ConditionTrue, Reason: "FailedCreate", Message: "no"}} {
		status := replicaset.Status{Replicas: 5, FullyLabeled: 4, Ready: 3, Available: 2, ObservedGeneration: 7, Failure: failure}
		written := withStatus(rc, status)
		if read := (kind{}).Status(written); !equality.Semantic.DeepEqual(read, status) {
			t.Errorf("read %+v, want %+v", read, status)
		}
		if written.Status.Conditions[0] != foreign || len(written.Status.Conditions) > 2 {
			t.Errorf("conditions %+v", written.Status.Conditions)
		}
	}
	if !equality.Semantic.DeepEqual(rc, before) {
		t.Error("the given object was changed")
	}
}
