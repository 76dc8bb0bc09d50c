package uidguard_test

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/uidguard"
)

func TestRefused(t *testing.T) {
	t.Parallel()
	secrets, kind := schema.GroupResource{Resource: "secrets"}, schema.GroupKind{Kind: "Secret"}
	invalid := func(path *field.Path) error {
		return apierrors.NewInvalid(kind, "a", field.ErrorList{field.Invalid(path, "x", "field is immutable")})
	}
	tests := []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"gone", apierrors.NewNotFound(secrets, "a"), true},
		{"conflict", apierrors.NewConflict(secrets, "a", errors.New("changed")), true},
		{"another object", invalid(field.NewPath("metadata", "uid")), true},
		{"another object, wrapped", fmt.Errorf("patch: %w", invalid(field.NewPath("metadata", "uid"))), true},
		{"invalid otherwise", invalid(field.NewPath("metadata", "labels")), false},
		{"forbidden", apierrors.NewForbidden(secrets, "a", errors.New("no")), false},
		{"not an answer", errors.New("broken pipe"), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := uidguard.Refused(test.err); got != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}
