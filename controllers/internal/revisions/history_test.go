package revisions_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/revisions"
)

func revision(name string, number int64, created time.Time, data string) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.NewTime(created)},
		Revision:   number,
		Data:       runtime.RawExtension{Raw: []byte(data)},
	}
}

func names(history []*appsv1.ControllerRevision) string {
	var all []string
	for _, revision := range history {
		all = append(all, revision.Name)
	}
	return strings.Join(all, " ")
}

func TestOrderAndNumbers(t *testing.T) {
	t.Parallel()
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	history := []*appsv1.ControllerRevision{
		revision("d", 7, early, "x"), revision("c", 2, late, "y"), revision("b", 2, late, "x"), revision("a", 2, late, "x"),
		revision("z", 2, early, "z"), revision("e", 1, late, "y"),
	}
	if next := revisions.NextNumber(history); next != 8 {
		t.Errorf("next number %d", next)
	}
	if next := revisions.NextNumber(nil); next != 1 {
		t.Errorf("first number %d", next)
	}
	revisions.Sort(history)
	if got := names(history); got != "e z a b c d" {
		t.Errorf("sorted: %s", got)
	}
	if got := names(revisions.WithData(history, []byte("x"))); got != "a b d" {
		t.Errorf("equal: %s", got)
	}
}

func TestNameIsCut(t *testing.T) {
	t.Parallel()
	if name := revisions.Name(strings.Repeat("a", 300), "hash"); name != strings.Repeat("a", 223)+"-hash" {
		t.Errorf("name %s", name)
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "web", UID: "u", Annotations: map[string]string{"kubernetes.io/change-cause": "why"},
	}}
	snapshot := revisions.Snapshot{
		Owner: set, OwnerKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), Template: template(), Data: []byte(known),
		Number: 3, Name: "web-h", Hash: "h", HashLabel: "hash",
	}
	got := snapshot.Revision()
	want := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web-h",
			Labels:          map[string]string{"app": "web", "hash": "h"},
			Annotations:     map[string]string{"kubernetes.io/change-cause": "why"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
		},
		Revision: 3,
		Data:     runtime.RawExtension{Raw: []byte(known)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, changed := snapshot.Template.Labels["hash"]; changed {
		t.Error("the labels of the template were changed")
	}
	got.Annotations["another"] = ""
	if len(set.Annotations) != 1 {
		t.Error("the annotations are the owner's own")
	}
	snapshot.Template.Labels = nil
	if labels := snapshot.Revision().Labels; len(labels) != 1 {
		t.Errorf("labels %v", labels)
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	if _, taken, err := revisions.Create(t.Context(), client, revision("a", 1, time.Time{}, `{"spec":{}}`)); err != nil || taken {
		t.Fatalf("taken %t, %v", taken, err)
	}
	there, taken, err := revisions.Create(t.Context(), client, revision("a", 5, time.Time{}, `{"spec":{}}`))
	if err != nil || !taken || there.Revision != 1 {
		t.Errorf("the same data: %v, taken %t, %v", there, taken, err)
	}
	if _, _, err := revisions.Create(t.Context(), client, revision("a", 5, time.Time{}, `{"spec":1}`)); !apierrors.IsAlreadyExists(err) {
		t.Errorf("other data: %v", err)
	}
}

func TestRenumberLeavesTheCacheAlone(t *testing.T) {
	t.Parallel()
	cached := revision("a", 1, time.Time{}, `{}`)
	client := fake.NewClientset(cached.DeepCopy())
	answer, err := revisions.Renumber(t.Context(), client, cached, 4)
	if err != nil || answer.Revision != 4 || cached.Revision != 1 {
		t.Errorf("answer %v, cached %v, %v", answer, cached, err)
	}
	if _, err := revisions.Renumber(t.Context(), client, revision("none", 1, time.Time{}, ``), 4); !apierrors.IsNotFound(err) {
		t.Errorf("of one that is gone: %v", err)
	}
}

func TestDeleteOldest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		count int
		kept  string
		want  string
	}{
		{count: -1, want: "r0 r1 r2 r3 r4"},
		{count: 0, want: "r0 r1 r2 r3 r4"},
		{count: 2, want: "r2 r3 r4"},
		{count: 2, kept: "r0 r2", want: "r0 r2 r4"},
		{count: 9, kept: "r4", want: "r4"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.count, " but ", test.kept), func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			var history []*appsv1.ControllerRevision
			for i := range 5 {
				made, _, err := revisions.Create(t.Context(), client, revision(fmt.Sprint("r", i), int64(i), time.Time{}, `{}`))
				if err != nil {
					t.Fatal(err)
				}
				history = append(history, made)
			}
			keep := func(revision *appsv1.ControllerRevision) bool {
				return slices.Contains(strings.Fields(test.kept), revision.Name)
			}
			for range 2 { // the second time they are gone already
				if err := revisions.DeleteOldest(t.Context(), client, history, test.count, keep); err != nil {
					t.Fatal(err)
				}
			}
			list, err := client.AppsV1().ControllerRevisions("ns").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for i := range list.Items {
				left = append(left, list.Items[i].Name)
			}
			slices.Sort(left)
			if got := strings.Join(left, " "); got != test.want {
				t.Errorf("left: %s, want %s", got, test.want)
			}
		})
	}
}
