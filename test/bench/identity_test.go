package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

const newNamespaces = 500

// Each namespace gets the service account default and the ConfigMap
// kube-root-ca.crt. The time runs from the creation of the first until the last
// has both.
func BenchmarkNewNamespaces(b *testing.B) {
	compareWork(b, workload{
		what: fmt.Sprintf("%d new namespaces", newNamespaces),
		run: func(b *testing.B, client kubernetes.Interface, namespace string) time.Time {
			b.Helper()
			prefix := namespace + "-"
			accounts, err := client.CoreV1().ServiceAccounts("").Watch(b.Context(), metav1.ListOptions{FieldSelector: "metadata.name=default"})
			if err != nil {
				b.Fatal(err)
			}
			bundles, err := client.CoreV1().ConfigMaps("").Watch(b.Context(), metav1.ListOptions{FieldSelector: "metadata.name=kube-root-ca.crt"})
			if err != nil {
				b.Fatal(err)
			}
			allAccounts, allBundles := added(accounts, prefix, newNamespaces), added(bundles, prefix, newNamespaces)
			since := time.Now()
			inParallel(b, newNamespaces, func(ctx context.Context, i int) error {
				_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(prefix, i)},
				}, metav1.CreateOptions{})
				return err
			})
			for _, all := range []<-chan error{allAccounts, allBundles} {
				if err := <-all; err != nil {
					b.Fatal(err)
				}
			}
			return since
		},
	})
}

// added sends nil once a watch has shown so many new objects in namespaces with a
// prefix, and an error when it has not in time.
func added(w watch.Interface, prefix string, count int) <-chan error {
	all := make(chan error, 1)
	timeout := time.After(workloadWithin)
	go func() {
		defer w.Stop()
		for seen := 0; seen < count; {
			select {
			case e, ok := <-w.ResultChan():
				object, isObject := e.Object.(metav1.Object)
				if !ok || !isObject {
					all <- fmt.Errorf("the watch ended after %d objects, with %+v", seen, e.Object)
					return
				}
				if e.Type == watch.Added && strings.HasPrefix(object.GetNamespace(), prefix) {
					seen++
				}
			case <-timeout:
				all <- fmt.Errorf("%d of %d objects within %s", seen, count, workloadWithin)
				return
			}
		}
		all <- nil
	}()
	return all
}
