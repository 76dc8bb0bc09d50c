package deployment

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func templateOf(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

// rolling is a Deployment of image "new".
func rolling(replicas int32, surge, unavailable string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "web", Generation: 2},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Template: templateOf("new"),
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge: ptr.To(intstr.Parse(surge)), MaxUnavailable: ptr.To(intstr.Parse(unavailable)),
				},
			},
			ProgressDeadlineSeconds: ptr.To[int32](600),
		},
	}
}

func recreating(replicas int32) *appsv1.Deployment {
	d := rolling(replicas, "0", "0")
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	return d
}

// set is a ReplicaSet whose name is also its image, made age seconds ago.
func set(name string, age int, size, available int32) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: name, UID: types.UID(name),
			CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(age) * time.Second)),
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &size, Template: templateOf(name)},
	}
	rs.Status.Replicas, rs.Status.AvailableReplicas = size, available
	rs.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = name
	return rs
}

func annotatedSet(rs *appsv1.ReplicaSet, key, value string) *appsv1.ReplicaSet {
	metav1.SetMetaDataAnnotation(&rs.ObjectMeta, key, value)
	return rs
}

func ofRevision(rs *appsv1.ReplicaSet, revision int) *appsv1.ReplicaSet {
	return annotatedSet(rs, revisionAnnotation, strconv.Itoa(revision))
}

// newRollout is a reconcile of d that has claimed sets, which the API server has too.
func newRollout(d *appsv1.Deployment, sets ...*appsv1.ReplicaSet) *rollout {
	api := fake.NewClientset()
	for _, rs := range sets {
		if err := api.Tracker().Add(rs); err != nil {
			panic(err)
		}
	}
	r := &rollout{
		deploymentController: &deploymentController{
			client: api, events: record.NewFakeRecorder(100), log: slog.New(slog.DiscardHandler), pace: newPacer(),
		},
		d:        d.DeepCopy(),
		stored:   d,
		observed: d.Status,
		now:      metav1.NewTime(now),
		bounds:   boundsOf(d),
		all:      sortedByAge(sets),
	}
	r.divide()
	return r
}

// sizesOf are the sizes of all ReplicaSets by name.
func sizesOf(r *rollout) map[string]int32 {
	sizes := map[string]int32{}
	for _, rs := range r.all {
		sizes[rs.Name] = *rs.Spec.Replicas
	}
	return sizes
}

func TestDivide_TheOldestOfTheTemplateIsTheNewOne(t *testing.T) {
	younger, older, old := set("new", 1, 1, 0), set("new", 2, 1, 0), set("old", 3, 1, 0)
	younger.Name, younger.UID = "younger", "younger"
	r := newRollout(rolling(1, "1", "0"), younger, old, older)
	if r.newRS != older || len(r.old) != 2 || r.old[0] != old || r.old[1] != younger {
		t.Errorf("new %v, old %v", r.newRS, r.old)
	}
}

// One that is deleted in the foreground is there as long as its pods are. A
// second one of the template could not have its name.
func TestDivide_ASetThatIsBeingDeletedIsStillTheNewOne(t *testing.T) {
	rs := set("new", 1, 1, 0)
	rs.DeletionTimestamp, rs.Finalizers = &metav1.Time{Time: now}, []string{metav1.FinalizerDeleteDependents}
	if r := newRollout(rolling(1, "1", "0"), set("old", 3, 1, 0), rs); r.newRS != rs || len(r.old) != 1 {
		t.Errorf("new %v, old %v", r.newRS, r.old)
	}
}

// A request that was cancelled by a stop says nothing about the object.
func TestEnsureNewReplicaSet_ACancelledCreationIsNotReported(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	d := rolling(1, "1", "0")
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: d.Spec.Template.Labels}
	r := newRollout(d)
	r.client.(*fake.Clientset).PrependReactor("create", "replicasets", func(kubetesting.Action) (bool, runtime.Object, error) {
		cancel()
		return true, nil, ctx.Err()
	})
	if err := r.ensureNewReplicaSet(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if events := r.events.(*record.FakeRecorder).Events; len(events) > 0 || len(r.d.Status.Conditions) > 0 {
		t.Errorf("%d events, conditions %+v", len(events), r.d.Status.Conditions)
	}
}

func TestEqualTemplates(t *testing.T) {
	base := templateOf("x")
	labelled := set("x", 0, 0, 0).Spec.Template
	other := templateOf("x")
	other.Labels["tier"] = "front"
	bare := corev1.PodTemplateSpec{}
	empty := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "h"}, Annotations: map[string]string{},
	}}
	for name, test := range map[string]struct {
		a, b corev1.PodTemplateSpec
		want bool
	}{
		"the hash label does not count": {base, labelled, true},
		"on either side":                {labelled, base, true},
		"another label does":            {base, other, false},
		"nothing is like empty":         {bare, empty, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := equalTemplates(&test.a, &test.b); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
	if _, ok := labelled.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !ok {
		t.Error("the comparison took the label away")
	}
}

// A Deployment without a selector, which the API server does not store any
// more, is told of, and nothing else is done.
func TestRun_RefusesSelectingAll(t *testing.T) {
	for name, selector := range map[string]*metav1.LabelSelector{"missing": nil, "empty": {}} {
		t.Run(name, func(t *testing.T) {
			d := rolling(3, "1", "1")
			d.Spec.Selector = selector
			r := newRollout(d)
			if err := r.client.(*fake.Clientset).Tracker().Add(d); err != nil {
				t.Fatal(err)
			}
			if err := r.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := "Warning SelectingAll This deployment is selecting all pods. A non-empty selector is required."
			if got := <-r.events.(*record.FakeRecorder).Events; got != want {
				t.Errorf("event %q", got)
			}
			if got := r.stored.Status; got.ObservedGeneration != 2 || len(got.Conditions) > 0 {
				t.Errorf("status %+v", got)
			}
			for _, action := range r.client.(*fake.Clientset).Actions() {
				if !action.Matches("update", "deployments/status") {
					t.Errorf("request %v", action)
				}
			}
		})
	}
}
