package rootca

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestReloadsAtAnyMomentChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	seen := w.watch()
	bundles := map[string]bool{string(w.ca.CertPEM): true}
	stop := controller.Reload(uint64(time.Now().UnixNano()), 50, 10)
	const count = 60
	var all []string
	deleted := map[string]types.UID{}
	for i := range count {
		namespace := w.namespace()
		all = append(all, namespace)
		switch i % 4 {
		case 0:
			configMap := w.published(namespace, "")
			w.delete(namespace, configMapName)
			deleted[namespace] = configMap.UID
		case 1:
			w.published(namespace, "")
			w.patch(namespace, `{"data":{"ca.crt":"broken by a user"}}`)
		}
		if i%20 == 19 {
			w.rotate()
			bundles[string(w.ca.CertPEM)] = true
		}
	}
	stop()
	for _, namespace := range all {
		w.published(namespace, deleted[namespace])
	}
	w.settled()
	if writes := w.Writes(configMaps.GroupResource()); len(writes) == 0 {
		t.Error("no writes are recorded")
	} else {
		for _, r := range writes {
			if r.Verb != "create" && r.Verb != "update" {
				t.Errorf("unexpected write: %+v", r)
			}
		}
	}
	bundles["broken by a user"] = true
	uids, wrong := seen()
	for _, data := range wrong(bundles) {
		t.Errorf("published: %q", data)
	}
	for _, namespace := range all {
		want := 1
		if deleted[namespace] != "" {
			want = 2
		}
		if got := uids[namespace]; got != want {
			t.Errorf("%d ConfigMaps were made in %s, want %d", got, namespace, want)
		}
	}
}

// watch sees every state of every ConfigMap from now on. The returned function
// ends it, and counts the ConfigMaps by namespace.
func (w *world) watch() func() (uids map[string]int, wrong func(map[string]bool) []string) {
	w.t.Helper()
	var mu sync.Mutex
	mine := map[string]map[types.UID]bool{}
	contents := map[string]map[string]bool{}
	only := metav1.ListOptions{FieldSelector: "metadata.name=" + configMapName}
	stop := harness.Follow(w.t, w.Admin.CoreV1().ConfigMaps(""), only, func(event watch.EventType, configMap *corev1.ConfigMap) {
		mu.Lock()
		defer mu.Unlock()
		if mine[configMap.Namespace] == nil {
			mine[configMap.Namespace], contents[configMap.Namespace] = map[types.UID]bool{}, map[string]bool{}
		}
		mine[configMap.Namespace][configMap.UID] = true
		if event != watch.Deleted {
			contents[configMap.Namespace][configMap.Data[dataKey]] = true
		}
	})
	return func() (map[string]int, func(map[string]bool) []string) {
		w.t.Helper()
		last := w.namespace()
		w.published(last, "")
		harness.Eventually(w.t, within, "the last ConfigMap in the watch", func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if len(mine[last]) == 0 {
				return errors.New("it is not seen yet")
			}
			return nil
		})
		stop()
		return w.seen(mine, contents)
	}
}

// seen are the numbers and contents in the namespaces of this test.
func (w *world) seen(uids map[string]map[types.UID]bool, contents map[string]map[string]bool) (map[string]int, func(map[string]bool) []string) {
	w.t.Helper()
	namespaces, err := w.Admin.CoreV1().Namespaces().List(w.t.Context(), metav1.ListOptions{LabelSelector: "test=" + w.label})
	if err != nil {
		w.t.Fatal(err)
	}
	counts := map[string]int{}
	for i := range namespaces.Items {
		counts[namespaces.Items[i].Name] = len(uids[namespaces.Items[i].Name])
	}
	return counts, func(allowed map[string]bool) (wrong []string) {
		for namespace := range counts {
			for data := range contents[namespace] {
				if !allowed[data] {
					wrong = append(wrong, fmt.Sprintf("%s in %s", data, namespace))
				}
			}
		}
		return wrong
	}
}
