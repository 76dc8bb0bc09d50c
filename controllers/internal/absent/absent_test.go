package absent_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/absent"
)

func TestObject(t *testing.T) {
	t.Parallel()
	pods := v1.Resource("pods")
	notFound := apierrors.NewNotFound(pods, "p")
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"nothing", nil, false},
		{"another error", errors.New("refused"), false},
		{"conflict", apierrors.NewConflict(pods, "p", errors.New("newer")), false},
		{"not found", notFound, true},
		{"not found, wrapped", fmt.Errorf("get pod: %w", notFound), true},
		{"page of a proxy", apierrors.NewGenericServerResponse(http.StatusNotFound, "get", pods, "p", "404 page not found", 0, true), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := absent.Object(test.err); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}
