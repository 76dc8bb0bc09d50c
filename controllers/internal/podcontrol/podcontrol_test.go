package podcontrol_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/client"
)

var pods = schema.GroupResource{Resource: "pods"}

func owner(name string) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: "rs"}}
}

func controller(of *appsv1.ReplicaSet) *metav1.OwnerReference {
	return metav1.NewControllerRef(of, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
}

func template() *v1.PodTemplateSpec {
	return &v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Name: "ignored", Namespace: "ignored", GenerateName: "ignored-",
			OwnerReferences: []metav1.OwnerReference{{Name: "ignored"}},
			Labels:          map[string]string{"app": "web"},
			Annotations:     map[string]string{"note": "kept"},
			Finalizers:      []string{"x/y"},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "nginx"}}},
	}
}

func TestFromTemplate(t *testing.T) {
	given := template()
	pod, err := podcontrol.FromTemplate(given, owner("web"), controller(owner("web")))
	if err != nil {
		t.Fatal(err)
	}
	want := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", GenerateName: "web-",
			Labels:      map[string]string{"app": "web"},
			Annotations: map[string]string{"note": "kept"},
			Finalizers:  []string{"x/y"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "nginx"}}},
	}
	if !equality.Semantic.DeepEqual(pod, want) {
		t.Errorf("got %+v, want %+v", pod, want)
	}
	pod.Labels["app"], pod.Annotations["note"], pod.Finalizers[0], pod.Spec.Containers[0].Name = "x", "x", "x", "x"
	if !equality.Semantic.DeepEqual(given, template()) {
		t.Error("the pod shares memory with the template")
	}
}

func TestFromTemplateNames(t *testing.T) {
	for name, want := range map[string]string{
		"web":                    "web-",
		"web.example":            "web.example-",
		strings.Repeat("a", 253): strings.Repeat("a", 253) + "-",
		strings.Repeat("a", 254): strings.Repeat("a", 254),
	} {
		pod, err := podcontrol.FromTemplate(template(), owner(name), controller(owner(name)))
		if err != nil || pod.GenerateName != want {
			t.Errorf("owner %s: generateName %q, error %v", name, pod.GenerateName, err)
		}
	}
}

func TestFromTemplateRefuses(t *testing.T) {
	if _, err := podcontrol.FromTemplate(&v1.PodTemplateSpec{}, owner("web"), controller(owner("web"))); err == nil ||
		err.Error() != "unable to create pods, no labels" {
		t.Errorf("template without labels: %v", err)
	}
	if _, err := podcontrol.FromTemplate(template(), owner("web"), nil); err == nil {
		t.Error("no reference was accepted")
	}
	for name, spoil := range map[string]func(*metav1.OwnerReference){
		"no apiVersion":               func(r *metav1.OwnerReference) { r.APIVersion = "" },
		"no kind":                     func(r *metav1.OwnerReference) { r.Kind = "" },
		"controller not set":          func(r *metav1.OwnerReference) { r.Controller = nil },
		"controller false":            func(r *metav1.OwnerReference) { r.Controller = ptr.To(false) },
		"blockOwnerDeletion not set":  func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = nil },
		"blockOwnerDeletion is false": func(r *metav1.OwnerReference) { r.BlockOwnerDeletion = ptr.To(false) },
	} {
		ref := controller(owner("web"))
		spoil(ref)
		if _, err := podcontrol.FromTemplate(template(), owner("web"), ref); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func terminating() error {
	err := apierrors.NewForbidden(pods, "", errors.New("namespace a is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1.NamespaceTerminatingCause}}
	return err
}

func TestCreate(t *testing.T) {
	refused := apierrors.NewForbidden(pods, "", errors.New("exceeded quota"))
	for _, test := range []struct {
		name    string
		answer  error
		stopped bool
		event   string
	}{
		{name: "created", event: "Normal SuccessfulCreate Created pod: web-1"},
		{name: "refused", answer: refused, event: `Warning FailedCreate Error creating: pods is forbidden: exceeded quota`},
		{name: "namespace goes", answer: terminating()},
		{name: "stopped", answer: context.Canceled, stopped: true},
		{name: "fenced", answer: fmt.Errorf("post: %w", client.ErrFenced)},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			api := fake.NewClientset()
			api.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if test.stopped {
					stop()
				}
				pod := action.(clienttesting.CreateAction).GetObject().(*v1.Pod).DeepCopy()
				pod.Name = pod.GenerateName + "1"
				return true, pod, test.answer
			})
			events := record.NewFakeRecorder(10)
			pod, err := podcontrol.FromTemplate(template(), owner("web"), controller(owner("web")))
			if err != nil {
				t.Fatal(err)
			}
			created, err := podcontrol.Control{Client: api, Events: events}.Create(ctx, owner("web"), pod)
			if !errors.Is(err, test.answer) || (err == nil) != (created != nil) {
				t.Errorf("got %v, %v", created, err)
			}
			wantEvent(t, events, test.event)
		})
	}
}

func TestDelete(t *testing.T) {
	refused := apierrors.NewForbidden(pods, "p", errors.New("no"))
	for _, test := range []struct {
		name    string
		answer  error
		stopped bool
		err     string
		event   string
	}{
		{name: "deleted", event: "Normal SuccessfulDelete Deleted pod: p"},
		{name: "gone", answer: apierrors.NewNotFound(pods, "p")},
		{name: "replaced by another of that name", answer: apierrors.NewConflict(pods, "p", errors.New("uid"))},
		{name: "refused", answer: refused, err: `unable to delete pods: pods "p" is forbidden: no`,
			event: `Warning FailedDelete Error deleting: pods "p" is forbidden: no`},
		{name: "stopped", answer: context.Canceled, stopped: true, err: "unable to delete pods: context canceled"},
		{name: "fenced", answer: client.ErrFenced, err: "unable to delete pods: " + client.ErrFenced.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			api := fake.NewClientset()
			api.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				options := action.(clienttesting.DeleteActionImpl).DeleteOptions
				if options.Preconditions == nil || *options.Preconditions.UID != "pod" || options.GracePeriodSeconds != nil {
					t.Errorf("options %+v", options)
				}
				if test.stopped {
					stop()
				}
				return true, nil, test.answer
			})
			events := record.NewFakeRecorder(10)
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "pod"}}
			err := podcontrol.Control{Client: api, Events: events}.Delete(ctx, owner("web"), pod)
			if got := fmt.Sprint(err); test.err == "" && err != nil || test.err != "" && got != test.err {
				t.Errorf("error %v, want %q", err, test.err)
			}
			wantEvent(t, events, test.event)
		})
	}
}

func TestNamespaceTerminating(t *testing.T) {
	if !podcontrol.NamespaceTerminating(fmt.Errorf("create: %w", terminating())) {
		t.Error("the cause was not found")
	}
	if podcontrol.NamespaceTerminating(apierrors.NewForbidden(pods, "", errors.New("exceeded quota"))) || podcontrol.NamespaceTerminating(nil) {
		t.Error("another error was taken for it")
	}
}

func wantEvent(t *testing.T, events *record.FakeRecorder, want string) {
	t.Helper()
	got := ""
	if len(events.Events) > 0 {
		got = <-events.Events
	}
	if got != want || len(events.Events) > 0 {
		t.Errorf("event %q and %d more, want %q", got, len(events.Events), want)
	}
}
