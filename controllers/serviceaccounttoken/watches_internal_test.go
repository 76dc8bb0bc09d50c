package serviceaccounttoken

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// queued by handlers that are called by call.
func queued(t *testing.T, call func(*tokenController)) (secrets map[secretKey]int, accounts map[accountKey]int) {
	t.Helper()
	secrets, accounts = map[secretKey]int{}, map[accountKey]int{}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		group := work.NewGroup(work.GroupOptions{Logger: slog.New(slog.DiscardHandler)})
		c := &tokenController{
			known: newKnown(),
			secretQueue: work.NewQueue(group, work.Options[secretKey]{
				Reconcile: func(_ context.Context, key secretKey) (work.Result, error) {
					mu.Lock()
					defer mu.Unlock()
					secrets[key]++
					return work.Result{}, nil
				},
			}),
			accountQueue: work.NewQueue(group, work.Options[accountKey]{
				Reconcile: func(_ context.Context, key accountKey) (work.Result, error) {
					mu.Lock()
					defer mu.Unlock()
					accounts[key]++
					return work.Result{}, nil
				},
			}),
		}
		call(c)
		group.Start(t.Context(), 1)
		synctest.Wait()
		if err := group.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return secrets, accounts
}

func secretOf(uid types.UID, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "s", UID: uid,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "a", corev1.ServiceAccountUIDKey: "u"},
		},
		Type: kind,
	}
}

func keyWith(uid types.UID) secretKey {
	return secretKey{ObjectName: cache.NewObjectName("n", "s"), uid: uid, account: "a", accountUID: "u"}
}

func TestSecretHandler(t *testing.T) {
	t.Parallel()
	const token, opaque = corev1.SecretTypeServiceAccountToken, corev1.SecretTypeOpaque
	tests := []struct {
		name string
		call func(cache.ResourceEventHandler)
		want []secretKey
	}{
		{"add", func(h cache.ResourceEventHandler) { h.OnAdd(secretOf("1", token), false) }, []secretKey{keyWith("1")}},
		{"add of another type", func(h cache.ResourceEventHandler) { h.OnAdd(secretOf("1", opaque), true) }, nil},
		{"update", func(h cache.ResourceEventHandler) { h.OnUpdate(secretOf("1", token), secretOf("1", token)) }, []secretKey{keyWith("1")}},
		{"update that hides a deletion", func(h cache.ResourceEventHandler) {
			h.OnUpdate(secretOf("1", token), secretOf("2", token))
		}, []secretKey{keyWith("1"), keyWith("2")}},
		{"deletion", func(h cache.ResourceEventHandler) { h.OnDelete(secretOf("1", token)) }, []secretKey{keyWith("1")}},
		{"deletion that nobody saw", func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "n/s", Obj: secretOf("1", token)})
		}, []secretKey{keyWith("1")}},
		{"deletion of nothing known", func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Key: "n/s"}) }, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			secrets, accounts := queued(t, func(c *tokenController) { test.call(c.secretHandler()) })
			if len(secrets) != len(test.want) || len(accounts) > 0 {
				t.Errorf("queued %v and %v", secrets, accounts)
			}
			for _, key := range test.want {
				if secrets[key] != 1 {
					t.Errorf("%v was queued %d times", key, secrets[key])
				}
			}
		})
	}
}

func TestAccountHandler(t *testing.T) {
	t.Parallel()
	account := func(uid types.UID) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", UID: uid}}
	}
	tests := []struct {
		name string
		call func(cache.ResourceEventHandler)
		want types.UID
	}{
		{"add", func(h cache.ResourceEventHandler) { h.OnAdd(account("1"), true) }, ""},
		{"update", func(h cache.ResourceEventHandler) { h.OnUpdate(account("1"), account("1")) }, ""},
		{"update that hides a deletion", func(h cache.ResourceEventHandler) { h.OnUpdate(account("1"), account("2")) }, "1"},
		{"deletion", func(h cache.ResourceEventHandler) { h.OnDelete(account("1")) }, "1"},
		{"deletion that nobody saw", func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "n/a", Obj: account("1")})
		}, "1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			secrets, accounts := queued(t, func(c *tokenController) { test.call(c.accountHandler()) })
			want := 0
			if test.want != "" {
				want = 1
			}
			key := accountKey{ObjectName: cache.NewObjectName("n", "a"), uid: test.want}
			if len(secrets) > 0 || len(accounts) != want || accounts[key] != want {
				t.Errorf("queued %v and %v", secrets, accounts)
			}
		})
	}
}

// The Secrets that there are, each by its last key, are all that is remembered.
func TestKnownSecrets(t *testing.T) {
	queued(t, func(c *tokenController) {
		handler := c.secretHandler()
		expect := func(after string, want ...secretKey) {
			t.Helper()
			got := c.known.all()
			if len(got) != len(want) || len(want) == 1 && got[0] != want[0] {
				t.Errorf("known after %s: %v, want %v", after, got, want)
			}
		}
		opaque, first := secretOf("1", corev1.SecretTypeOpaque), secretOf("1", corev1.SecretTypeServiceAccountToken)
		handler.OnAdd(opaque, true)
		expect("an opaque one")
		handler.OnAdd(first, true)
		expect("a token", keyOf(first))
		moved := first.DeepCopy()
		moved.Annotations[corev1.ServiceAccountNameKey] = "b"
		handler.OnUpdate(first, moved)
		expect("a change of its account", keyOf(moved))
		handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "n/s", Obj: moved})
		expect("its end")
	})
}
