package tokencleaner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/tokencleaner"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// All tokens are in one namespace, so that the tests of this package run one
// after the other.
func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

const (
	// soon is ample on a busy machine. How soon something comes is told by the controller's own clock.
	soon = 2 * time.Minute
	// aWhile is how long something must not happen.
	aWhile = 300 * time.Millisecond
	// late is how long after its expiration a token may be deleted, by the controller's clock.
	late = 5 * time.Second
	// confidential is the part of a token that nobody may see.
	confidential = "0123456789abcdef"
)

var secrets = v1.SchemeGroupVersion.WithResource("secrets")

// world is a controller whose clock the test sets forward.
type world struct {
	*harness.Engine
	t          *testing.T
	clock      *clocktesting.FakeClock
	controller *harness.Instance

	mu sync.Mutex
	// deletions that the controller asked for: when they were, by its clock.
	deletions map[string][]time.Time
}

func start(t *testing.T) *world {
	t.Helper()
	var log harness.Log
	w := &world{t: t, clock: harness.NewClock(t, time.Now().Truncate(time.Second)), deletions: map[string][]time.Time{}}
	w.Engine = harness.New(t, controlplane.Shared(t), harness.Options{Clock: w.clock, Log: io.MultiWriter(t.Output(), &log)})
	t.Cleanup(func() {
		if strings.Contains(log.String(), confidential) {
			t.Error("the secret of a token is in the log")
		}
		for _, namespace := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
			err := w.Admin.CoreV1().Secrets(namespace).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})
			if err != nil {
				t.Error(err)
			}
		}
	})
	w.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb == "delete" {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.deletions[r.Name] = append(w.deletions[r.Name], w.clock.Now())
		}
	})
	w.controller = w.Start(tokencleaner.Descriptor(), nil)
	return w
}

// in is a time by the controller's clock, as tokens have it.
func (w *world) in(d time.Duration) string { return w.clock.Now().Add(d).Format(time.RFC3339) }

// token creates a token with an expiration; empty for none.
func (w *world) token(name, expiration string, changes ...func(*v1.Secret)) *v1.Secret {
	w.t.Helper()
	token := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name},
		Type:       "bootstrap.kubernetes.io/token",
		Data:       map[string][]byte{"token-id": []byte("abcdef"), "token-secret": []byte(confidential)},
	}
	if expiration != "" {
		token.Data["expiration"] = []byte(expiration)
	}
	for _, change := range changes {
		change(token)
	}
	token, err := w.Admin.CoreV1().Secrets(token.Namespace).Create(w.t.Context(), token, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// expire changes the expiration of a token.
func (w *world) expire(name, expiration string) {
	w.t.Helper()
	body := fmt.Sprintf(`{"stringData":{"expiration":%q}}`, expiration)
	_, err := w.Admin.CoreV1().Secrets(metav1.NamespaceSystem).Patch(w.t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) get(namespace, name string) *v1.Secret {
	w.t.Helper()
	secret, err := w.Admin.CoreV1().Secrets(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return secret
}

func (w *world) gone(name string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "end of token "+name, func(context.Context) error {
		// A reconcile that had read the time before it was set waits by that time.
		w.clock.Step(100 * time.Millisecond)
		if w.get(metav1.NamespaceSystem, name) != nil {
			return errors.New("it is still there")
		}
		return nil
	})
}

// seen returns when the controller has looked at everything there is.
func (w *world) seen() {
	w.t.Helper()
	w.controller.CatchUp()
	var quiet time.Time
	harness.Eventually(w.t, soon, "quiet", func(context.Context) error {
		if status := w.controller.Work(); status.Busy > 0 || status.Depth > 0 || quiet.IsZero() {
			quiet = time.Now()
		}
		if time.Since(quiet) < 100*time.Millisecond {
			return errors.New("something was going on just now")
		}
		return nil
	})
}

// stays fails the test when a secret goes within a while after all has been seen.
func (w *world) stays(secret *v1.Secret) {
	w.t.Helper()
	w.seen()
	harness.Throughout(w.t, aWhile, "life of "+secret.Name, func(context.Context) error {
		switch now := w.get(secret.Namespace, secret.Name); {
		case now == nil:
			return errors.New("it is gone")
		case now.UID != secret.UID || now.DeletionTimestamp != nil:
			return fmt.Errorf("it has UID %s, was %s, and deletion time %v", now.UID, secret.UID, now.DeletionTimestamp)
		}
		return nil
	})
}

// requested deletions of a token.
func (w *world) requested(name string) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]time.Time(nil), w.deletions[name]...)
}

func TestAcceptance01_ATokenGoesWhenItExpires(t *testing.T) {
	w := start(t)
	expiry := w.clock.Now().Add(time.Minute).Truncate(time.Second)
	token := w.token("t", expiry.Format(time.RFC3339))
	w.seen()
	w.clock.SetTime(expiry.Add(-30 * time.Second))
	w.stays(token)
	w.clock.SetTime(expiry)
	harness.Eventually(t, soon, "end of the token", func(context.Context) error {
		if w.get(metav1.NamespaceSystem, "t") == nil {
			return nil
		}
		// A reconcile that had read the time before it was set waits by that time.
		if w.clock.Now().Before(expiry.Add(late / 5)) {
			w.clock.Step(100 * time.Millisecond)
		}
		return errors.New("it is still there")
	})
	if at := w.requested("t"); len(at) != 1 || at[0].Before(expiry) || at[0].After(expiry.Add(late)) {
		t.Errorf("deleted at %s, want once and within %s after %s", at, late, expiry)
	}
}

func TestAcceptance02_ExpiredAndUnreadableTokensGo(t *testing.T) {
	w := start(t)
	forever := w.token("forever", "")
	w.token("past", w.in(-time.Hour))
	w.token("unreadable", "soon")
	w.token("zone", w.clock.Now().Add(-time.Minute).In(time.FixedZone("", 5*3600)).Format(time.RFC3339))
	for _, name := range []string{"past", "unreadable", "zone"} {
		w.gone(name)
	}
	w.clock.Step(1000 * time.Hour)
	w.stays(forever)
}

func TestAcceptance03_TheExpirationIsMoved(t *testing.T) {
	w := start(t)
	token := w.token("t", w.in(time.Minute))
	removed := w.token("removed", w.in(time.Minute))
	w.seen()
	w.expire("t", w.in(time.Hour))
	_, err := w.Admin.CoreV1().Secrets(metav1.NamespaceSystem).Patch(t.Context(), "removed", types.MergePatchType,
		[]byte(`{"data":{"expiration":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.seen()
	w.clock.Step(2 * time.Minute)
	w.stays(token)
	w.stays(removed)
	w.expire("t", w.in(-time.Second))
	w.gone("t")
	w.stays(removed)
}

func TestAcceptance04_OtherSecretsStay(t *testing.T) {
	w := start(t)
	opaque := w.token("bootstrap-token-abcdef", w.in(-time.Hour), func(s *v1.Secret) { s.Type = v1.SecretTypeOpaque })
	elsewhere := w.token("bootstrap-token-abcdef", w.in(-time.Hour), func(s *v1.Secret) { s.Namespace = metav1.NamespaceDefault })
	w.token("t", w.in(-time.Hour))
	w.gone("t")
	w.stays(opaque)
	w.stays(elsewhere)
}

func TestAcceptance05_ATokenThatExpiredWhileStopped(t *testing.T) {
	w := start(t)
	w.token("t", w.in(time.Minute))
	w.seen()
	w.controller.Stop()
	w.clock.Step(2 * time.Minute)
	if w.get(metav1.NamespaceSystem, "t") == nil {
		t.Fatal("a stopped controller has deleted it")
	}
	w.controller.Start()
	w.gone("t")
}

func TestAcceptance06_ARefusedDeletionIsRepeated(t *testing.T) {
	w := start(t)
	allow := w.Proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == "delete" }, http.StatusForbidden, 0)
	w.token("t", w.in(-time.Hour))
	harness.Eventually(t, soon, "refusal", func(context.Context) error {
		if len(w.requested("t")) == 0 {
			return errors.New("no deletion was asked for")
		}
		return nil
	})
	allow()
	w.gone("t")
}

func TestATokenThatTheCacheDoesNotKnowAnyMoreStays(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(w *world) *v1.Secret
	}{
		{"it got more time", func(w *world) *v1.Secret {
			w.expire("t", w.in(time.Hour))
			token := w.get(metav1.NamespaceSystem, "t")
			if token == nil {
				w.t.Fatal("it is gone")
			}
			return token
		}},
		{"it was replaced", func(w *world) *v1.Secret {
			err := w.Admin.CoreV1().Secrets(metav1.NamespaceSystem).Delete(w.t.Context(), "t", metav1.DeleteOptions{})
			if err != nil {
				w.t.Fatal(err)
			}
			return w.token("t", w.in(time.Hour))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := start(t)
			w.token("t", w.in(time.Minute))
			w.seen()
			release := w.Proxy.HoldWatches(secrets.GroupResource())
			defer release()
			token := test.change(w)
			w.clock.Step(2 * time.Minute)
			harness.Eventually(t, soon, "refused deletion", func(context.Context) error {
				refused := w.Proxy.Requests(func(r apiproxy.Request) bool { return r.Verb == "delete" && r.Code == http.StatusConflict })
				if len(refused) == 0 {
					return errors.New("none yet")
				}
				return nil
			})
			release()
			w.stays(token)
			if at := w.requested("t"); len(at) != 1 {
				t.Errorf("%d deletions, want the one that was refused", len(at))
			}
		})
	}
}

func TestATokenHeldByAFinalizerIsDeletedOnce(t *testing.T) {
	w := start(t)
	w.token("t", w.in(-time.Hour), func(s *v1.Secret) { s.Finalizers = []string{"example.com/hold"} })
	harness.Eventually(t, soon, "deletion", func(context.Context) error {
		switch token := w.get(metav1.NamespaceSystem, "t"); {
		case token == nil:
			return errors.New("it is gone, though it has a finalizer")
		case token.DeletionTimestamp == nil:
			return errors.New("it is not being deleted")
		}
		return nil
	})
	w.expire("t", w.in(-time.Minute))
	w.seen()
	if at := w.requested("t"); len(at) != 1 {
		t.Errorf("%d deletions, want 1", len(at))
	}
	_, err := w.Admin.CoreV1().Secrets(metav1.NamespaceSystem).Patch(t.Context(), "t", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.gone("t")
}

func TestReloadsAtAnyMomentDeleteExpiredTokensOnly(t *testing.T) {
	w := start(t)
	var mu sync.Mutex
	accepted := map[string]time.Time{}
	deleted := map[string]types.UID{}
	stopFollowing := harness.Follow(t, w.Admin.CoreV1().Secrets(metav1.NamespaceSystem), metav1.ListOptions{},
		func(event watch.EventType, token *v1.Secret) {
			if event == watch.Deleted {
				mu.Lock()
				defer mu.Unlock()
				deleted[token.Name] = token.UID
			}
		})
	w.Proxy.After(func(r apiproxy.Request) {
		if r.Verb == "delete" && r.Code == http.StatusOK {
			mu.Lock()
			defer mu.Unlock()
			accepted[r.Name] = w.clock.Now()
		}
	})
	stop := w.controller.Disturb(uint64(time.Now().UnixNano()))
	forever := map[types.UID]string{}
	expiries := map[string]time.Time{}
	const rounds = 40
	for n := range rounds {
		name := fmt.Sprintf("t-%d", n)
		if n%4 == 0 {
			forever[w.token(name, "").UID] = name
		} else {
			expiry := w.clock.Now().Add(time.Duration(n) * 10 * time.Second).Truncate(time.Second)
			w.token(name, expiry.Format(time.RFC3339))
			if n%4 == 1 {
				expiry = expiry.Add(time.Hour)
				w.expire(name, expiry.Format(time.RFC3339))
			}
			expiries[name] = expiry
		}
		w.clock.Step(5 * time.Second)
	}
	w.clock.Step(2 * time.Hour)
	for name := range expiries {
		w.gone(name)
	}
	stop()
	w.seen()

	w.token("last", w.in(-time.Hour))
	harness.Eventually(t, soon, "the last deletion in the watch", func(context.Context) error {
		w.clock.Step(100 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if deleted["last"] == "" {
			return errors.New("it is not seen yet")
		}
		return nil
	})
	stopFollowing()
	mu.Lock()
	defer mu.Unlock()
	for name, uid := range deleted {
		if _, ok := forever[uid]; ok {
			t.Errorf("%s was deleted, although it never expires", name)
		}
	}
	for name, at := range accepted {
		if expiry, ok := expiries[name]; ok && at.Before(expiry) {
			t.Errorf("%s was deleted at %s, before it expired at %s", name, at, expiry)
		}
	}
}
