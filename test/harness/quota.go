package harness

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LimitPods lets the namespace have so many pods, with a quota named "pods", as
// an admin and the resourcequota-controller do. At the first call there must be
// no pod yet. That returns when the API server heeds the quota: until then it
// would let in pods that are not charged. A later call changes the limit.
func (e *Engine) LimitPods(pods string) {
	e.t.Helper()
	ctx, quotas := e.t.Context(), e.Admin.CoreV1().ResourceQuotas(e.Namespace)
	hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(pods)}
	write := func(quota *corev1.ResourceQuota, used corev1.ResourceList) *corev1.ResourceQuota {
		quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: used}
		quota, err := quotas.UpdateStatus(ctx, quota, metav1.UpdateOptions{})
		if err != nil {
			e.t.Fatal(err)
		}
		return quota
	}
	quota, err := quotas.Get(ctx, "pods", metav1.GetOptions{})
	if err == nil {
		quota.Spec.Hard = hard
		if quota, err = quotas.Update(ctx, quota, metav1.UpdateOptions{}); err != nil {
			e.t.Fatal(err)
		}
		write(quota, quota.Status.Used)
		return
	}
	quota, err = quotas.Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
	}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	quota = write(quota, hard) // as if it were used up, which can be seen
	e.waitForPods("no pod is let in", apierrors.IsForbidden)
	if none := resource.MustParse("0"); none.Cmp(hard[corev1.ResourcePods]) < 0 {
		write(quota, corev1.ResourceList{corev1.ResourcePods: none})
		e.waitForPods("pods are let in", func(err error) bool { return err == nil })
	}
}

// waitForPods until the API server gives the answer to a pod that is wanted.
func (e *Engine) waitForPods(what string, wanted func(error) bool) {
	e.t.Helper()
	probe := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
	Eventually(e.t, 2*time.Minute, what, func(ctx context.Context) error {
		_, err := e.Admin.CoreV1().Pods(e.Namespace).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !wanted(err) {
			return fmt.Errorf("a pod is answered with %w", err)
		}
		return nil
	})
}
