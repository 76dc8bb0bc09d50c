package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	fullNamespaceObjects = 1000
	manyNamespaces       = 20
	manyNamespaceObjects = 50
)

// The time runs from the deletion until the namespace is gone. 5 seconds of it are
// the grace period that both wait before they release a namespace.
func BenchmarkNamespace(b *testing.B) {
	compareWork(b, deletionOfNamespaces(fmt.Sprintf("deletion of a namespace with %d ConfigMaps", fullNamespaceObjects),
		1, fullNamespaceObjects, false))
}

// As BenchmarkNamespace, but until the content is gone.
func BenchmarkNamespaceContent(b *testing.B) {
	compareWork(b, deletionOfNamespaces(fmt.Sprintf("deletion of the content of a namespace with %d ConfigMaps", fullNamespaceObjects),
		1, fullNamespaceObjects, true))
}

func BenchmarkNamespaces(b *testing.B) {
	compareWork(b, deletionOfNamespaces(fmt.Sprintf("deletion of %d namespaces with %d ConfigMaps each", manyNamespaces, manyNamespaceObjects),
		manyNamespaces, manyNamespaceObjects, false))
}

// deletionOfNamespaces with so many ConfigMaps in each, until they or only their content are gone.
func deletionOfNamespaces(what string, namespaces, objects int, contentOnly bool) workload {
	name := func(namespace string, i int) string { return fmt.Sprintf("%s-%d", namespace, i) }
	return workload{
		what:  what,
		nodes: 1,
		prepare: func(b *testing.B, client kubernetes.Interface, namespace string) {
			b.Helper()
			for i := range namespaces {
				n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(namespace, i)}}
				if _, err := client.CoreV1().Namespaces().Create(b.Context(), n, metav1.CreateOptions{}); err != nil {
					b.Fatal(err)
				}
				createConfigMaps(b, client, n.Name, objects)
			}
		},
		run: func(b *testing.B, client kubernetes.Interface, namespace string) time.Time {
			b.Helper()
			since := time.Now()
			for i := range namespaces {
				if err := client.CoreV1().Namespaces().Delete(b.Context(), name(namespace, i), metav1.DeleteOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			await(b, "all namespaces deleted", func(ctx context.Context) (bool, error) {
				for i := range namespaces {
					if contentOnly {
						list, err := client.CoreV1().ConfigMaps(name(namespace, i)).List(ctx, metav1.ListOptions{Limit: 1})
						if err != nil || len(list.Items) > 0 {
							return false, err
						}
						continue
					}
					_, err := client.CoreV1().Namespaces().Get(ctx, name(namespace, i), metav1.GetOptions{})
					if !apierrors.IsNotFound(err) {
						return false, err
					}
				}
				return true, nil
			})
			return since
		},
	}
}

func createConfigMaps(b *testing.B, client kubernetes.Interface, namespace string, count int) {
	b.Helper()
	var makers sync.WaitGroup
	numbers := make(chan int)
	for range 8 {
		makers.Go(func() {
			for n := range numbers {
				c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d", n)}}
				if _, err := client.CoreV1().ConfigMaps(namespace).Create(b.Context(), c, metav1.CreateOptions{}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for n := range count {
		numbers <- n
	}
	close(numbers)
	makers.Wait()
}
