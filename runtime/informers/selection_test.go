package informers_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

func TestASelectionKeepsItsObjectsOnly(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	admin := adminClient(t, cp)
	here, elsewhere := cp.Namespace(t), cp.Namespace(t)
	create := func(namespace, name string, kind corev1.SecretType) string {
		secret, err := admin.CoreV1().Secrets(namespace).Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: kind}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret.ResourceVersion
	}
	create(here, "wanted", "example.com/a")
	create(here, "other-type", "example.com/b")
	create(elsewhere, "other-namespace", "example.com/a")

	pool, _ := newPool(t, cp.AdminConfig(), informers.Options{})
	lease := pool.Lease("user")
	defer lease.Release()
	both, err := lease.SelectedInformer(secrets, informers.Selection{Namespace: here, FieldSelector: "type=example.com/a"})
	if err != nil {
		t.Fatal(err)
	}
	byType, err := lease.SelectedInformer(secrets, informers.Selection{FieldSelector: "type=example.com/a"})
	if err != nil {
		t.Fatal(err)
	}
	mustSync(t, lease)
	keys := func(i *informers.Informer) []string { return slices.Sorted(slices.Values(i.Indexer().ListKeys())) }
	if got := keys(both); !slices.Equal(got, []string{here + "/wanted"}) {
		t.Errorf("kept by namespace and type: %q", got)
	}
	want := []string{elsewhere + "/other-namespace", here + "/wanted"}
	slices.Sort(want)
	if got := keys(byType); !slices.Equal(got, want) {
		t.Errorf("kept by type: %q, want %q", got, want)
	}
	resource := schema.GroupResource{Resource: "secrets"}
	version := create(here, "later", "example.com/a")
	eventually(t, "a write that is selected shows", func() bool { return lease.Reached(resource, version) })

	// What is not selected has no event that would show it.
	create(elsewhere, "later", "example.com/b")
	ctx, cancel := context.WithTimeout(t.Context(), longTime)
	defer cancel()
	if err := lease.CatchUp(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	selections := []string{}
	for _, status := range pool.Status() {
		selections = append(selections, status.Selection)
	}
	slices.Sort(selections)
	if want := []string{"in " + here + ", type=example.com/a", "type=example.com/a"}; !slices.Equal(selections, want) {
		t.Errorf("status of the selections %q, want %q", selections, want)
	}
}
