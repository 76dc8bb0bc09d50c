package podcontrol_test

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	owner, other := cache.NewObjectName("ns", "a"), cache.NewObjectName("ns", "b")
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("quota"))
	doomed := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "p", errors.New("namespace"))
	doomed.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: v1.NamespaceTerminatingCause}}

	outcomes := podcontrol.NewOutcomes()
	caughtUp := 0
	settle := func(key cache.ObjectName, err error) error {
		return outcomes.Settle(t.Context(), key, func(context.Context) error { caughtUp++; return err })
	}
	for _, err := range []error{nil, refused, doomed} {
		outcomes.Note(owner, "1", err)
	}
	if err := settle(owner, nil); err != nil || caughtUp != 0 {
		t.Errorf("clear answers: %v, caught up %d times", err, caughtUp)
	}
	outcomes.Note(owner, "1", errors.New("connection reset"))
	if err := settle(other, nil); err != nil || caughtUp != 0 {
		t.Errorf("another owner: %v, caught up %d times", err, caughtUp)
	}
	if err := settle(owner, context.Canceled); !errors.Is(err, context.Canceled) || caughtUp != 1 {
		t.Errorf("failed to catch up: %v, caught up %d times", err, caughtUp)
	}
	if err := settle(owner, nil); err != nil || caughtUp != 2 {
		t.Errorf("unknown outcome: %v, caught up %d times", err, caughtUp)
	}
	if err := settle(owner, nil); err != nil || caughtUp != 2 {
		t.Errorf("settled: %v, caught up %d times", err, caughtUp)
	}

	if !outcomes.Doomed(owner, "1") || outcomes.Doomed(owner, "2") || outcomes.Doomed(other, "1") || outcomes.Doomed(other, "") {
		t.Error("the wrong owners are doomed")
	}
	outcomes.Note(owner, "1", errors.New("connection reset"))
	outcomes.Forget(owner)
	if err := settle(owner, nil); err != nil || caughtUp != 2 || outcomes.Doomed(owner, "1") {
		t.Errorf("a forgotten owner is remembered: %v, caught up %d times", err, caughtUp)
	}
}
