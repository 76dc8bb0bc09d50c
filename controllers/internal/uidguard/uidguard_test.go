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

func TestRefusedAndGone(t *testing.T) {
	t.Parallel()
	secrets, kind := schema.GroupResource{Resource: "secrets"}, schema.GroupKind{Kind: "Secret"}
	invalid := func(path *field.Path) error {
		return apierrors.NewInvalid(kind, "a", field.ErrorList{field.Invalid(path, "x", "field is immutable")})
	}
	tests := []struct {
		name          string
		err           error
		refused, gone bool
	}{
		{"no error", nil, false, false},
		{"gone", apierrors.NewNotFound(secrets, "a"), true, true},
		{"conflict", apierrors.NewConflict(secrets, "a", errors.New("changed")), true, false},
		{"another object", invalid(field.NewPath("metadata", "uid")), true, true},
		{"another object, wrapped", fmt.Errorf("patch: %w", invalid(field.NewPath("metadata", "uid"))), true, true},
		{"invalid otherwise", invalid(field.NewPath("metadata", "labels")), false, false},
		{"forbidden", apierrors.NewForbidden(secrets, "a", errors.New("no")), false, false},
		{"not an answer", errors.New("broken pipe"), false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if refused, gone := uidguard.Refused(test.err), uidguard.Gone(test.err); refused != test.refused || gone != test.gone {
				t.Errorf("refused %t, gone %t; want %t, %t", refused, gone, test.refused, test.gone)
			}
		})
	}
}
