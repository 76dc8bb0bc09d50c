package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	quotaNamespaces = 10
	// churned objects of each namespace, half of them pods, half ConfigMaps.
	quotaChurn = 100
)

// quotaHard are the quotas of each namespace; nothing is ever refused.
var quotaHard = []map[corev1.ResourceName]string{
	{"pods": "1000"},
	{"count/pods": "1000", "requests.cpu": "1000"},
	{"configmaps": "1000"},
	{"count/configmaps": "1000", "secrets": "1000"},
	{"pods": "1000", "configmaps": "1000", "services": "1000"},
}

func BenchmarkQuotas(b *testing.B) {
	compareWork(b, workload{
		what:    fmt.Sprintf("%d ResourceQuotas, %d pods and ConfigMaps come and go", quotaNamespaces*len(quotaHard), quotaNamespaces*quotaChurn),
		nodes:   4,
		prepare: prepareQuotas,
		run: func(b *testing.B, client kubernetes.Interface, namespace string) time.Time {
			b.Helper()
			since := time.Now()
			var churning sync.WaitGroup
			errs := make(chan error, quotaNamespaces)
			for i := range quotaNamespaces {
				churning.Go(func() { errs <- churn(b.Context(), client, quotaNamespace(namespace, i)) })
			}
			churning.Wait()
			close(errs)
			for err := range errs {
				if err != nil {
					b.Fatal(err)
				}
			}
			awaitQuotas(b, client, namespace)
			return since
		},
	})
}

func quotaNamespace(base string, i int) string { return fmt.Sprintf("%s-%d", base, i) }

func prepareQuotas(b *testing.B, client kubernetes.Interface, namespace string) {
	b.Helper()
	for i := range quotaNamespaces {
		name := quotaNamespace(namespace, i)
		_, err := client.CoreV1().Namespaces().Create(b.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		for j, limits := range quotaHard {
			hard := corev1.ResourceList{}
			for resourceName, quantity := range limits {
				hard[resourceName] = resource.MustParse(quantity)
			}
			_, err := client.CoreV1().ResourceQuotas(name).Create(b.Context(), &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("quota-%d", j)}, Spec: corev1.ResourceQuotaSpec{Hard: hard},
			}, metav1.CreateOptions{})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	awaitQuotas(b, client, namespace)
}

// awaitQuotas waits until all quotas are counted and show nothing of the churn:
// no pods, and no ConfigMap but that of the cluster's certificates.
func awaitQuotas(b *testing.B, client kubernetes.Interface, namespace string) {
	b.Helper()
	most := map[corev1.ResourceName]int64{"configmaps": 1, "count/configmaps": 1}
	await(b, "all quotas counted", func(ctx context.Context) (bool, error) {
		for i := range quotaNamespaces {
			quotas, err := client.CoreV1().ResourceQuotas(quotaNamespace(namespace, i)).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			for j := range quotas.Items {
				q := &quotas.Items[j]
				if len(q.Status.Used) != len(q.Spec.Hard) {
					return false, fmt.Errorf("status %+v", q.Status)
				}
				for resourceName, used := range q.Status.Used {
					if used.Value() > most[resourceName] {
						return false, fmt.Errorf("used %s: %s", resourceName, used.String())
					}
				}
			}
		}
		return true, nil
	})
}

// churn creates and deletes pods and ConfigMaps, a few of which are there at a time.
func churn(ctx context.Context, client kubernetes.Interface, namespace string) error {
	const there = 5
	pods, configMaps := client.CoreV1().Pods(namespace), client.CoreV1().ConfigMaps(namespace)
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	template := podTemplate(nil)
	template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m")}
	for i := range quotaChurn/2 + there {
		if i < quotaChurn/2 {
			name := fmt.Sprintf("churn-%d", i)
			_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template.Spec}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create a pod: %w", err)
			}
			_, err = configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("create a ConfigMap: %w", err)
			}
		}
		if i < there {
			continue
		}
		name := fmt.Sprintf("churn-%d", i-there)
		if err := pods.Delete(ctx, name, now); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete a pod: %w", err)
		}
		if err := configMaps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete a ConfigMap: %w", err)
		}
	}
	return nil
}
