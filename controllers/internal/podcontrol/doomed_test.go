package podcontrol_test

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

func TestDoomed(t *testing.T) {
	t.Parallel()
	owner, other := cache.NewObjectName("ns", "a"), cache.NewObjectName("ns", "b")
	doomed := podcontrol.NewDoomed()
	for _, err := range []error{nil, errors.New("connection reset"), apierrors.NewForbidden(pods, "p", errors.New("quota"))} {
		doomed.Note(owner, "1", err)
	}
	if doomed.Has(owner, "1") {
		t.Error("doomed without a reason")
	}
	doomed.Note(owner, "1", terminating())
	if !doomed.Has(owner, "1") || doomed.Has(owner, "2") || doomed.Has(other, "1") || doomed.Has(other, "") {
		t.Error("the wrong owners are doomed")
	}
	doomed.Forget(owner)
	if doomed.Has(owner, "1") {
		t.Error("a forgotten owner is remembered")
	}
}
