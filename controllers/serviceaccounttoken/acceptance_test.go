package serviceaccounttoken_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/serviceaccount"
	"github.com/wheelhouse-project/wheelhouse/controllers/serviceaccounttoken"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance01_ASecretIsFilledAndAuthenticates(t *testing.T) {
	t.Parallel()
	w := started(t)
	account := w.account("a")
	w.secret("s", "a")
	secret := w.filled("s")
	if got := string(secret.Data["namespace"]); got != w.Namespace {
		t.Errorf("namespace %q", got)
	}
	if got := secret.Annotations[corev1.ServiceAccountUIDKey]; got != string(account.UID) {
		t.Errorf("UID of the account: %q, want %q", got, account.UID)
	}
	w.authenticates(secret.Data["token"], "a")
	w.settled()
	if writes := w.writes("update", "s"); len(writes) != 1 {
		t.Errorf("writes: %+v", writes)
	}
}

func TestAcceptance02_WhatATokenSays(t *testing.T) {
	t.Parallel()
	for algorithm, key := range map[string][]byte{"RS256": rsaKey, "ES256": ecKey} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.write(w.keyFile, key)
			w.start()
			account := w.account("a")
			w.secret("s", "a")
			secret := w.filled("s")
			header, claims := decode(t, secret.Data["token"])
			wantHeader := map[string]any{"alg": algorithm, "kid": keyID(t, key)}
			if !maps.Equal(header, wantHeader) {
				t.Errorf("header %v, want %v", header, wantHeader)
			}
			const prefix = "kubernetes.io/serviceaccount/"
			wantClaims := map[string]any{
				"iss":                           "kubernetes/serviceaccount",
				"sub":                           "system:serviceaccount:" + w.Namespace + ":a",
				prefix + "namespace":            w.Namespace,
				prefix + "service-account.name": "a",
				prefix + "service-account.uid":  string(account.UID),
				prefix + "secret.name":          "s",
			}
			if !maps.Equal(claims, wantClaims) {
				t.Errorf("claims %v, want %v", claims, wantClaims)
			}
			w.authenticates(secret.Data["token"], "a")
		})
	}
}

func TestAcceptance03_ANamespaceOfItsOwnIsKept(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	w.secret("s", "a", data("namespace", "custom"))
	if got := string(w.filled("s").Data["namespace"]); got != "custom" {
		t.Errorf("namespace %q", got)
	}
}

func TestAcceptance04_ATokenThatIsThereIsKept(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	w.secret("s", "a", data("token", "abc"), data("extra", "kept"))
	secret := w.filled("s")
	if got := string(secret.Data["token"]); got != "abc" {
		t.Errorf("token of %d bytes", len(got))
	}
	if got := string(secret.Data["extra"]); got != "kept" {
		t.Errorf("what else is in it: %q", got)
	}
}

func TestAcceptance05_WhatIsTakenAwayIsPutBack(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	w.secret("s", "a")
	before := w.filled("s")
	w.patchSecret("s", `{"data":{"ca.crt":"Z2FyYmFnZQ=="}}`)
	w.filled("s")
	w.patchSecret("s", `{"data":{"namespace":null}}`)
	w.filled("s")
	w.patchSecret("s", `{"data":{"token":null}}`)
	after := w.filled("s")
	if !bytes.Equal(before.Data["token"], after.Data["token"]) {
		t.Error("another token: an RSA key makes the same one again")
	}
}

func TestAcceptance06_ASecretWithoutItsAccountIsDeleted(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	w.secret("nobody", "nosuch")
	w.secret("another", "a", accountUID("11111111-2222-3333-4444-555555555555"))
	w.gone("nobody")
	w.gone("another")
}

func TestAcceptance07_SecretsGoWithTheirAccount(t *testing.T) {
	t.Parallel()
	w := started(t)
	account := w.account("a")
	w.account("b")
	w.secret("s", "a")
	w.secret("other", "b")
	opaque := tokenSecret("opaque", "a", accountUID(account.UID))
	opaque.Type = corev1.SecretTypeOpaque
	w.create(opaque)
	w.filled("s")
	w.filled("other")
	w.deleteAccount("a")
	w.gone("s")
	w.settled()
	for _, name := range []string{"opaque", "other"} {
		if _, err := w.Admin.CoreV1().Secrets(w.Namespace).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("secret %s: %v", name, err)
		}
	}
	if writes := append(w.writes("update", "opaque"), w.writes("delete", "opaque")...); len(writes) != 0 {
		t.Errorf("writes of a secret that is no token: %+v", writes)
	}
}

func TestAcceptance08_AReferenceGoesWithItsSecret(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("b", "s1", "other", "s1")
	w.secret("s1", "b")
	w.filled("s1")
	w.deleteSecret("s1")
	w.listed("b", "other")
	if writes := w.writes("update", "b"); len(writes) != 1 {
		t.Errorf("writes: %+v", writes)
	}
}

// The account is not in the cache yet when its Secret is gone.
func TestAcceptance08_AReferenceGoesThoughTheCacheIsLate(t *testing.T) {
	t.Parallel()
	w := started(t)
	release := w.Proxy.HoldWatches(accounts)
	defer release()
	w.account("b", "s1", "other")
	w.secret("s1", "b")
	w.filled("s1")
	w.deleteSecret("s1")
	w.listed("b", "other")
}

// Nor does it stay when the controller is restarted while it cannot take it away.
func TestAcceptance08_AReferenceGoesThoughARestartComesBetween(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("b", "s1", "other")
	w.secret("s1", "b")
	w.filled("s1")
	w.settled()
	stop := w.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Verb == "get" && r.Resource == accounts && r.Name == "b"
	}, http.StatusInternalServerError, 0)
	w.deleteSecret("s1")
	harness.Eventually(t, soon, "error", func(context.Context) error {
		if got := w.controller.Work().LastError; !strings.Contains(got, "get service account") {
			return fmt.Errorf("last error %q", got)
		}
		return nil
	})
	w.controller.Stop()
	stop()
	w.controller.Start()
	w.listed("b", "other")
}

// A Secret that goes between two lives of the controller was known to the first.
func TestAcceptance08_AReferenceGoesThoughNobodySawItsSecretGo(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("b", "s1", "other", "stays")
	w.secret("s1", "b")
	w.secret("stays", "b")
	w.filled("s1")
	w.filled("stays")
	w.controller.Stop()
	w.deleteSecret("s1")
	w.controller.Start()
	w.listed("b", "other", "stays")
	w.settled()
	if writes := w.writes("update", "b"); len(writes) != 1 {
		t.Errorf("writes: %+v", writes)
	}
}

func TestAcceptance09_WhatHappenedWhileStoppedIsMadeUpFor(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("b")
	w.account("c")
	w.secret("b1", "b")
	w.secret("b2", "b")
	w.filled("b1")
	w.filled("b2")
	w.controller.Stop()
	w.deleteAccount("b")
	w.secret("c1", "c")
	w.controller.Start()
	w.gone("b1")
	w.gone("b2")
	w.filled("c1")
}

func TestAcceptance10_AnotherCAReachesEverySecret(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"restart", "live"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := started(t)
			w.account("a")
			tokens := map[string][]byte{}
			for i := range 5 {
				name := fmt.Sprint("s", i)
				w.secret(name, "a")
				tokens[name] = w.filled(name).Data["token"]
			}
			ca := w.read(w.caFile)
			other := append(append([]byte{}, ca...), ca...) // twice the same is another bundle
			if how == "restart" {
				w.controller.Stop()
			}
			w.write(w.caFile, other)
			w.controller.Start()
			for name, token := range tokens {
				if secret := w.filled(name); !bytes.Equal(secret.Data["token"], token) {
					t.Errorf("%s has another token", name)
				}
			}
		})
	}
}

// An immutable Secret cannot be filled. It is told of and left alone.
func TestAcceptance11_AnImmutableSecretIsToldOfAndLeftAlone(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	w.secret("fixed", "a", func(secret *corev1.Secret) { secret.Immutable = ptr.To(true) })
	w.secret("s", "a")
	w.filled("s")
	harness.Eventually(t, soon, "event", func(ctx context.Context) error {
		list, err := w.Admin.CoreV1().Events(w.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=fixed"})
		if err != nil {
			return err
		}
		for _, event := range list.Items {
			if event.Type == corev1.EventTypeWarning && event.Reason == "ImmutableTokenSecret" &&
				strings.Contains(event.Message, "ca.crt, namespace, token") {
				return nil
			}
		}
		return fmt.Errorf("events: %+v", list.Items)
	})
	w.settled()
	if writes := w.writes("update", "fixed"); len(writes) != 0 {
		t.Errorf("writes: %+v", writes)
	}
	w.deleteAccount("a")
	w.gone("fixed")
}

func TestAcceptance12_WithoutAKeyFileItIsUnavailable(t *testing.T) {
	t.Parallel()
	descriptor := serviceaccounttoken.Descriptor()
	if reason := descriptor.Unavailable(&schema.ServiceAccountTokenController{}, []byte("ca")); !strings.Contains(reason, "keyFile") {
		t.Errorf("reason %q", reason)
	}
	if reason := descriptor.Unavailable(&schema.ServiceAccountTokenController{KeyFile: "/sa.key"}, nil); reason != "" {
		t.Errorf("with a key file, reason %q", reason)
	}
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	other := serviceaccount.Descriptor()
	m := harness.StartManager(t, cp, harness.ManagerOptions{}, descriptor, other)
	m.AwaitState(descriptor.Name(), "Unavailable", "keyFile is not set")
	m.AwaitState(other.Name(), "Running", "")
}

func TestAcceptance13_ManySecretsGetOneTokenEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const count = 500
	w.account("a")
	var group errgroup.Group
	group.SetLimit(8)
	for i := range count {
		group.Go(func() error {
			_, err := w.Admin.CoreV1().Secrets(w.Namespace).Create(t.Context(), tokenSecret(fmt.Sprint("s", i), "a"), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	w.section.Workers = 1
	w.start()
	filled := func(atLeast int) {
		t.Helper()
		harness.Eventually(t, 2*soon, fmt.Sprintf("%d tokens", atLeast), func(ctx context.Context) error {
			list, err := w.Admin.CoreV1().Secrets(w.Namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return err
			}
			unfilled := slices.DeleteFunc(list.Items, func(secret corev1.Secret) bool { return len(secret.Data["token"]) > 0 })
			if have := count - len(unfilled); have < atLeast || len(list.Items) > count {
				return fmt.Errorf("%d", have)
			}
			return nil
		})
	}
	filled(count / 5)
	w.controller.Resize(10)
	filled(count)
	w.settled()
	updates := map[string]int{}
	for _, r := range w.Writes(secrets) {
		if r.Verb != "update" || r.Code != http.StatusOK {
			t.Errorf("write %+v", r)
		}
		updates[r.Name]++
	}
	for name, n := range updates {
		if n != 1 {
			t.Errorf("%d updates of %s", n, name)
		}
	}
	if len(updates) != count {
		t.Error(errors.New("not every secret was written"), len(updates))
	}
}
