package unsettled_test

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	web, db := cache.NewObjectName("ns", "web"), cache.NewObjectName("ns", "db")
	calls := 0
	var behind error
	keys := unsettled.New(func(_ context.Context, since time.Time) error {
		calls++
		if !since.Equal(now) {
			t.Errorf("catch up with %s", since)
		}
		return behind
	}, clocktesting.NewFakePassiveClock(now))
	settle := func(key cache.ObjectName, wantCalls int, wantErr error) {
		t.Helper()
		if err := keys.Settle(t.Context(), key); !errors.Is(err, wantErr) || calls != wantCalls {
			t.Errorf("%v after %d calls, want %v after %d", err, calls, wantErr, wantCalls)
		}
	}
	keys.Note(web, nil)
	keys.Note(web, apierrors.NewConflict(schema.GroupResource{}, "web", nil))
	settle(web, 0, nil)

	keys.Note(web, errors.New("connection reset"))
	settle(db, 0, nil)
	behind = errors.New("not yet")
	settle(web, 1, behind)
	behind = nil
	settle(web, 2, nil)
	settle(web, 2, nil)
	keys.Note(web, apierrors.NewInternalError(errors.New("etcd")))
	settle(web, 3, nil)
}
