package serviceaccounttoken_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// summary is what the controller says of itself, as JSON.
func (w *world) summary() string { return w.controller.Summary() }

// A new key signs what comes from then on; a bad one signs nothing, and is told of.
func TestTheKeyFileIsFollowed(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	w.secret("first", "a")
	first := w.filled("first")

	w.write(w.keyFile, []byte("-----BEGIN EC PRIVATE KEY-----\nbm90IGEga2V5\n-----END EC PRIVATE KEY-----\n"))
	harness.Eventually(t, soon, "rejection", func(context.Context) error {
		if summary := w.summary(); !strings.Contains(summary, `"rejected":{`) {
			return errors.New(summary)
		}
		return nil
	})
	w.secret("second", "a")
	w.authenticates(w.filled("second").Data["token"], "a")

	w.write(w.keyFile, ecKey)
	harness.Eventually(t, soon, "end of the rejection", func(context.Context) error {
		if summary := w.summary(); strings.Contains(summary, `"rejected":{`) {
			return errors.New(summary)
		}
		return nil
	})
	w.secret("third", "a")
	third := w.filled("third")
	if header, _ := decode(t, third.Data["token"]); header["alg"] != "ES256" || header["kid"] != keyID(t, ecKey) {
		t.Errorf("header %v after a change of the key", header)
	}
	w.authenticates(third.Data["token"], "a")
	w.settled()
	if now := w.filled("first"); !bytes.Equal(now.Data["token"], first.Data["token"]) {
		t.Error("a token was signed anew")
	}

	// Nothing that is secret is told to anybody.
	told := w.log.String() + w.summary()
	for _, secret := range []string{string(first.Data["token"]), string(third.Data["token"])} {
		for _, part := range strings.Split(secret, ".") {
			if strings.Contains(told, part) {
				t.Error("a part of a token is in the log or the summary")
			}
		}
	}
	for _, key := range [][]byte{ecKey, rsaKey} {
		for _, line := range strings.Split(string(key), "\n") {
			if len(line) > 0 && !strings.HasPrefix(line, "-----") && strings.Contains(told, line) {
				t.Error("a part of a key is in the log or the summary")
			}
		}
	}
	if !strings.Contains(told, keyID(t, ecKey)) {
		t.Error("nobody is told by which key tokens are signed")
	}
}

// An account that a finalizer holds is there until it is gone, and so are its tokens.
func TestAnAccountThatIsBeingDeletedHasTokens(t *testing.T) {
	t.Parallel()
	w := started(t)
	patch := func(patch string) {
		t.Helper()
		_, err := w.Admin.CoreV1().ServiceAccounts(w.Namespace).Patch(t.Context(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	w.account("a")
	patch(`{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.secret("before", "a")
	w.filled("before")
	w.deleteAccount("a")
	w.settled()
	w.secret("after", "a")
	w.secret("named", "a", data("token", "abc")) // is judged by the cache once it is filled
	w.filled("after")
	w.filled("named")
	w.settled()
	for _, name := range []string{"before", "after", "named"} {
		w.filled(name)
		if writes := w.writes("delete", name); len(writes) > 0 {
			t.Errorf("writes: %+v", writes)
		}
	}
	patch(`{"metadata":{"finalizers":null}}`)
	for _, name := range []string{"before", "after", "named"} {
		w.gone(name)
	}
}

// A CA file that is gone takes nothing away: the CA of before is given until there is another.
func TestACAFileThatIsGoneIsToldOf(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	w.secret("first", "a")
	w.filled("first")
	before := w.read(w.caFile)
	if err := os.Remove(w.caFile); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, soon, "rejection", func(context.Context) error {
		if summary := w.summary(); !strings.Contains(summary, `"rejected":{`) || !strings.Contains(summary, "no such file") {
			return errors.New(summary)
		}
		return nil
	})
	w.secret("second", "a")
	w.filledWith("second", before)
	w.write(w.caFile, bytes.Repeat(before, 2)) // twice the same is another bundle
	w.filled("second")
	w.filled("first")
	if summary := w.summary(); strings.Contains(summary, `"rejected":{`) {
		t.Error(summary)
	}
}

// The process's own CA is given when no file is configured.
func TestTheCAOfTheAPIServerIsTheDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.section.RootCAFile = ""
	w.start()
	w.account("a")
	w.secret("s", "a")
	w.filled("s")
}

// An account that is made anew under its name gets the Secrets that are meant
// for it, and not those of the one before, whatever the cache knows.
func TestAnAccountThatIsMadeAnewKeepsItsOwnSecrets(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	w.secret("old", "a")
	w.filled("old")
	release := w.Proxy.HoldWatches(accounts)
	w.deleteAccount("a")
	account := w.account("a")
	w.secret("new", "a")
	secret := w.filled("new") // the cache holds the account that is gone
	if got := secret.Annotations[corev1.ServiceAccountUIDKey]; got != string(account.UID) {
		t.Errorf("the token is of account %s, want %s", got, account.UID)
	}
	release()
	w.gone("old")
	w.settled()
	w.authenticates(w.filled("new").Data["token"], "a")
	if writes := w.writes("delete", "new"); len(writes) != 0 {
		t.Errorf("writes: %+v", writes)
	}
}

// A Secret that came with a token, and without the UID of its account, is of the
// account that is there, not of one that the cache still knows.
func TestASecretWithATokenIsOfTheAccountThatIsThere(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	w.controller.CatchUp()
	release := w.Proxy.HoldWatches(accounts)
	w.deleteAccount("a")
	account := w.account("a")
	w.secret("s", "a", data("token", "abc"))
	secret := w.filled("s")
	if got := secret.Annotations[corev1.ServiceAccountUIDKey]; got != string(account.UID) {
		t.Errorf("the Secret is of account %s, want %s", got, account.UID)
	}
	release()
	w.settled()
	if writes := w.writes("delete", "s"); len(writes) != 0 {
		t.Errorf("writes: %+v", writes)
	}
}

// A 404 that is not the API server's says nothing about an account.
func TestASecretStaysWhenAProxyFindsNothing(t *testing.T) {
	t.Parallel()
	w := started(t)
	stop := w.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Verb == "get" && r.Resource == accounts && r.Name == "a"
	}, http.StatusNotFound, 0)
	w.account("a")
	w.secret("s", "a")
	harness.Eventually(t, soon, "error", func(context.Context) error {
		if got := w.controller.Work().LastError; !strings.Contains(got, "get service account") {
			return fmt.Errorf("last error %q", got)
		}
		return nil
	})
	stop()
	w.filled("s")
	if writes := w.writes("delete", "s"); len(writes) != 0 {
		t.Errorf("writes: %+v", writes)
	}
}

// An account that the cache does not know yet keeps its Secret.
func TestAnAccountThatIsNewIsLookedFor(t *testing.T) {
	t.Parallel()
	w := started(t)
	release := w.Proxy.HoldWatches(accounts)
	defer release()
	account := w.account("a")
	w.secret("s", "a", accountUID(account.UID))
	w.filled("s")
}

// A Secret that has changed since the cache saw it is left for its event.
func TestASecretThatChangesMeanwhileGetsOneToken(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	first := true
	remove := w.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb == "update" && r.Name == "s" && first {
			first = false
			_, err := w.Admin.CoreV1().Secrets(w.Namespace).Patch(context.Background(), "s", "application/merge-patch+json",
				[]byte(`{"data":{"token":"YWJj"}}`), metav1.PatchOptions{})
			if err != nil {
				t.Error(err)
			}
		}
	})
	defer remove()
	w.secret("s", "a")
	if got := string(w.filled("s").Data["token"]); got != "abc" {
		t.Error("a token was replaced")
	}
	w.settled()
	writes := w.writes("update", "s")
	if len(writes) != 2 || writes[0].Code != http.StatusConflict || writes[1].Code != http.StatusOK {
		t.Errorf("writes: %+v", writes)
	}
	if status := w.controller.Work(); status.LastError != "" {
		t.Errorf("last error: %s", status.LastError)
	}
}

// What others manage in a Secret stays theirs.
func TestTheManagersOfASecretStay(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a")
	_, err := w.Admin.CoreV1().Secrets(w.Namespace).Create(t.Context(), tokenSecret("s", "a", data("extra", "x")),
		metav1.CreateOptions{FieldManager: "somebody"})
	if err != nil {
		t.Fatal(err)
	}
	secret := w.filled("s")
	if !slices.ContainsFunc(secret.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == "somebody" }) {
		t.Errorf("managers: %+v", secret.ManagedFields)
	}
}

// A reference is taken from an account that somebody else changes at the same moment.
func TestAReferenceGoesAlthoughTheAccountChanges(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("b", "s1", "other")
	w.secret("s1", "b")
	w.filled("s1")
	left := 3
	remove := w.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb == "update" && r.Name == "b" && left > 0 {
			left--
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"left":"%d"}}}`, left)
			_, err := w.Admin.CoreV1().ServiceAccounts(w.Namespace).Patch(context.Background(), "b", "application/merge-patch+json",
				[]byte(patch), metav1.PatchOptions{})
			if err != nil {
				t.Error(err)
			}
		}
	})
	defer remove()
	w.deleteSecret("s1")
	w.listed("b", "other")
	if writes := w.writes("update", "b"); len(writes) != 4 {
		t.Errorf("writes: %+v", writes)
	}
}

// A Secret that a finalizer holds is left alone.
func TestASecretThatIsBeingDeletedIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := started(t)
	w.account("a", "s")
	w.secret("s", "a", func(secret *corev1.Secret) { secret.Finalizers = []string{"example.com/hold"} })
	w.filled("s")
	w.deleteSecret("s")
	w.patchSecret("s", `{"data":{"namespace":null}}`)
	w.settled()
	harness.Throughout(t, aWhile, "rest", func(context.Context) error {
		if writes := w.writes("update", "s"); len(writes) != 1 {
			return fmt.Errorf("writes: %+v", writes)
		}
		return nil
	})
	w.listed("a", "s")
	w.patchSecret("s", `{"metadata":{"finalizers":null}}`)
	w.gone("s")
	w.listed("a")
}
