package election

import (
	"fmt"
	"maps"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

func TestMarksThatAreTooManyAreLeftOut(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 10000} {
		marks := map[apischema.GroupResource]string{}
		for i := range n {
			marks[apischema.GroupResource{Group: "stable.example.com", Resource: fmt.Sprintf("things%d", i)}] = "123456789"
		}
		lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To(""), LeaseTransitions: ptr.To[int32](3)}}
		if err := annotate(lease, marks); err != nil {
			t.Fatal(err)
		}
		if size := len(lease.Annotations[writtenAnnotation]); size > maxWritten {
			t.Errorf("%d resources: %d bytes", n, size)
		}
		got, ok := handedOver(lease)
		if want := n <= 1000; ok != want || ok && !maps.Equal(got, marks) {
			t.Errorf("%d resources: handed over %d, %t", n, len(got), ok)
		}
	}
}

func TestHandedOver(t *testing.T) {
	tests := []struct {
		name, annotation, holder string
		transitions              int32
		want                     bool
	}{
		{"released", `{"transitions":3,"written":{"pods":"1"}}`, "", 3, true},
		{"released without writes", `{"transitions":3,"written":{}}`, "", 3, true},
		{"held", `{"transitions":3,"written":{"pods":"1"}}`, "a", 3, false},
		{"led since", `{"transitions":3,"written":{"pods":"1"}}`, "", 4, false},
		{"made again", `{"transitions":3,"written":{"pods":"1"}}`, "", 0, false},
		{"no annotation", "", "", 0, false},
		{"not ours", `{"transitions":0}`, "", 0, false},
		{"broken", `{"transitions":3,"written":{"pods":`, "", 3, false},
		{"other types", `{"transitions":3,"written":{"pods":1}}`, "", 3, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			lease := &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{writtenAnnotation: test.annotation}},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &test.holder, LeaseTransitions: &test.transitions},
			}
			if _, ok := handedOver(lease); ok != test.want {
				t.Errorf("got %t, want %t", ok, test.want)
			}
		})
	}
}

func FuzzHandedOver(f *testing.F) {
	f.Add(`{"transitions":3,"written":{"pods":"1","deployments.apps":"2"}}`, int32(3))
	f.Add(`{"written":{".":"x"}}`, int32(0))
	f.Fuzz(func(t *testing.T, annotation string, transitions int32) {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{writtenAnnotation: annotation}},
			Spec:       coordinationv1.LeaseSpec{LeaseTransitions: &transitions},
		}
		marks, ok := handedOver(lease)
		if !ok {
			return
		}
		if err := annotate(lease, marks); err != nil {
			t.Fatal(err)
		}
		if again, ok := handedOver(lease); ok && len(again) > len(marks) {
			t.Fatalf("%d marks became %d", len(marks), len(again))
		}
	})
}
