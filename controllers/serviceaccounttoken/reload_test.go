package serviceaccounttoken_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// record of what was wrong with the Secrets of a test, as a watch sees them.
type record struct {
	mu     sync.Mutex
	tokens map[types.UID][]byte
	ended  map[string]bool
	wrongs []string
}

func (w *world) watchSecrets() *record {
	w.t.Helper()
	r := &record{tokens: map[types.UID][]byte{}, ended: map[string]bool{}}
	harness.Follow(w.t, w.Admin.CoreV1().Secrets(w.Namespace), metav1.ListOptions{}, r.note)
	return r
}

func (r *record) note(event watch.EventType, secret *corev1.Secret) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if event == watch.Deleted {
		r.ended[secret.Name] = true
	}
	before, now := r.tokens[secret.UID], secret.Data["token"]
	if len(before) > 0 && !bytes.Equal(before, now) {
		r.wrongs = append(r.wrongs, secret.Name+" got another token")
	}
	r.tokens[secret.UID] = now
}

// A reload at any moment changes nothing about where the cluster ends up: each
// Secret gets one token, those of accounts that are gone go, and no others.
func TestReloadsChangeNothing(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.undisturbed(func() (stop func()) { return w.controller.Reload(rand.Uint64(), 50, 20) }, func(updates int) bool { return updates == 1 })
}

// Nor do requests that are cut off: what they did is seen, and not done again.
func TestAbortsChangeNothing(t *testing.T) {
	t.Parallel()
	w := started(t)
	// The answer to an update that was carried out may be lost, with its record.
	w.undisturbed(func() (stop func()) { return w.controller.Disturb(rand.Uint64()) }, func(updates int) bool { return updates <= 1 })
}

// undisturbed fails the test unless all ends as it would without disturbances,
// with a right number of updates for each Secret.
func (w *world) undisturbed(disturb func() (stop func()), right func(updates int) bool) {
	w.t.Helper()
	const count = 12
	name := func(kind string, i int) string { return fmt.Sprintf("%s-%d", kind, i) }
	seen := w.watchSecrets()
	stop := disturb()
	for i := range count {
		w.account(name("stays", i), name("taken", i), "other")
		w.account(name("goes", i))
		w.secret(name("stays", i), name("stays", i))
		w.secret(name("taken", i), name("stays", i))
		w.secret(name("goes", i), name("goes", i))
		w.secret(name("orphan", i), "nosuch")
	}
	for i := range count {
		w.filled(name("stays", i))
		w.filled(name("goes", i))
		w.filled(name("taken", i))
		w.deleteSecret(name("taken", i))
		w.deleteAccount(name("goes", i))
		w.secret(name("late", i), name("stays", i))
	}
	for i := range count {
		w.gone(name("goes", i))
		w.gone(name("orphan", i))
		w.filled(name("late", i))
		w.listed(name("stays", i), "other")
	}
	stop()
	w.settled()
	for i := range count {
		for _, kind := range []string{"stays", "late"} {
			w.filled(name(kind, i))
			updates := 0
			for _, write := range w.writes("update", name(kind, i)) {
				if write.Resource == secrets && write.Code == http.StatusOK {
					updates++
				}
			}
			if !right(updates) {
				w.t.Errorf("%d updates of %s", updates, name(kind, i))
			}
		}
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, wrong := range seen.wrongs {
		w.t.Error(wrong)
	}
	for i := range count {
		if seen.ended[name("stays", i)] || seen.ended[name("late", i)] {
			w.t.Errorf("a secret of %s was deleted", name("stays", i))
		}
	}
}
