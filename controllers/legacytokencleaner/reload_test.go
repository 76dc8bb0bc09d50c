package legacytokencleaner_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/controllers/legacytokencleaner"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// touched are the Secrets that were ever marked or deleted, as a watch sees it.
type touched struct {
	mu    sync.Mutex
	names map[string]bool
}

func (w *world) watchSecrets() *touched {
	w.t.Helper()
	seen := &touched{names: map[string]bool{}}
	harness.Follow(w.t, w.Admin.CoreV1().Secrets(w.Namespace), metav1.ListOptions{}, func(event watch.EventType, secret *corev1.Secret) {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if event == watch.Deleted || secret.Labels[invalidSince] != "" {
			seen.names[secret.Name] = true
		}
	})
	return seen
}

// A reload at any moment changes nothing about where the cluster ends up. Each
// start begins a pass; one over caches that hold no Pods yet, or no service
// accounts, would mark what is needed, or leave the rest.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const count = 10
	name := func(kind string, i int) string { return fmt.Sprintf("%s-%d", kind, i) }
	var listed []string
	for i := range count {
		listed = append(listed, name("unused", i), name("mounted", i), name("used", i))
	}
	w.account("a", listed...)
	seen := w.watchSecrets()
	for i := range count {
		w.pod(name("p", i), corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{{Name: name("mounted", i)}}})
	}
	w.controller = w.Start(legacytokencleaner.Descriptor(), section(interval, period))
	stop := w.controller.Reload(rand.Uint64(), 50, 20)
	for i := range count {
		w.secret(name("mounted", i))
		w.secret(name("used", i), lastUsed, w.today())
		w.secret(name("manual", i))
		w.secret(name("unused", i))
	}
	for i := range count {
		harness.Eventually(t, soon, "mark of "+name("unused", i), func(context.Context) error {
			if mark := w.mark(name("unused", i)); mark != w.today() {
				return fmt.Errorf("it is %q", mark)
			}
			return nil
		})
		w.label(name("unused", i), invalidSince, longAgo)
	}
	stop()
	for i := range count {
		harness.Eventually(t, soon, "end of "+name("unused", i), func(ctx context.Context) error {
			_, err := w.Admin.CoreV1().Secrets(w.Namespace).Get(ctx, name("unused", i), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			w.pass()
			return fmt.Errorf("it is there: %w", err)
		})
		marks, deletions := 0, 0
		for _, write := range w.writes(name("unused", i)) {
			switch {
			case write.Code == http.StatusConflict || write.Code == http.StatusNotFound:
			case write.Verb == "patch" && write.Code == http.StatusOK:
				marks++
			case write.Verb == "delete" && write.Code == http.StatusOK:
				deletions++
			default:
				t.Errorf("write %+v", write)
			}
		}
		if marks != 1 || deletions != 1 {
			t.Errorf("%s: %d marks and %d deletions", name("unused", i), marks, deletions)
		}
	}
	w.pass()
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for touched := range seen.names {
		if !strings.HasPrefix(touched, "unused-") {
			t.Errorf("%s was marked or deleted", touched)
		}
	}
}
