package namespace

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestWriteTriesNewerVersions(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(namespaceResource.GroupResource(), "n", errors.New("changed"))
	missing := apierrors.NewNotFound(namespaceResource.GroupResource(), "n")
	refused := errors.New("refused")
	present := func(uid string) *corev1.Namespace {
		n := &corev1.Namespace{}
		n.Name, n.UID, n.ResourceVersion = "n", types.UID(uid), "2"
		return n
	}
	for _, test := range []struct {
		name    string
		live    *corev1.Namespace
		answers []error
		gone    bool
		want    error
	}{
		{name: "at once", answers: []error{nil}},
		{name: "gone", answers: []error{missing}, gone: true},
		{name: "refused", answers: []error{refused}, want: refused},
		{name: "a newer version", live: present("1"), answers: []error{conflict, conflict, nil}},
		{name: "gone meanwhile", answers: []error{conflict}, gone: true},
		{name: "another one", live: present("2"), answers: []error{conflict}, want: errUIDChanged},
		{name: "changed all the time", live: present("1"), answers: slices.Repeat([]error{conflict}, writeAttempts), want: conflict},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var objects []runtime.Object
			if test.live != nil {
				objects = append(objects, test.live)
			}
			c := &namespaceController{client: fake.NewClientset(objects...)}
			tries := 0
			got, err := c.write(t.Context(), present("1"), func(n *corev1.Namespace) (*corev1.Namespace, error) {
				tries++
				return n, test.answers[tries-1]
			})
			if !errors.Is(err, test.want) || (got == nil) != (test.gone || test.want != nil) || tries != len(test.answers) {
				t.Errorf("%v, %v after %d tries, want %v after %d", got, err, tries, test.want, len(test.answers))
			}
		})
	}
}

// New objects are refused because of the phase, so the grace period begins with it.
func TestTerminateRestartsTheGracePeriod(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(now)
	deleted := metav1.NewTime(now)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1", DeletionTimestamp: &deleted}}
	ns.Status.Phase = corev1.NamespaceActive
	client := fake.NewClientset(ns)
	c := &namespaceController{client: client, deletions: newDeletions(clock)}
	c.deletions.observe(ns)
	clock.SetTime(now.Add(sweepInterval))
	for range 2 { // the second time there is nothing to do
		var err error
		if ns, err = c.terminate(t.Context(), ns); err != nil || ns.Status.Phase != corev1.NamespaceTerminating {
			t.Fatalf("%+v, %v", ns, err)
		}
	}
	if got := c.deletions.since(ns); !got.Equal(clock.Now()) {
		t.Errorf("since %s, want %s", got, clock.Now())
	}
	if actions := client.Actions(); len(actions) != 1 || actions[0].GetSubresource() != "status" {
		t.Errorf("requests: %v", actions)
	}
}
