package harness

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Terminate deletes a namespace, which stays as long as no namespace controller
// runs, and returns when the API server refuses new content in it.
func (e *Engine) Terminate(namespace string) {
	e.t.Helper()
	if err := e.Admin.CoreV1().Namespaces().Delete(e.t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
	Eventually(e.t, 2*time.Minute, "refusal", func(ctx context.Context) error {
		_, err := e.Admin.CoreV1().ConfigMaps(namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		return fmt.Errorf("want a refusal because of the namespace's end, got %w", err)
	})
}
