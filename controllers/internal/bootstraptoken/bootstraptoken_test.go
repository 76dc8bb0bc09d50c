package bootstraptoken_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cluster-bootstrap/token/jws"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/bootstraptoken"
)

const key = "0123456789abcdef"

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func secret(name string, data map[string]string) *v1.Secret {
	made := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: map[string][]byte{}}
	for k, v := range data {
		made.Data[k] = []byte(v)
	}
	return made
}

// token is a valid one, with some changes.
func token(changes map[string]string) *v1.Secret {
	data := map[string]string{"token-id": "abcdef", "token-secret": key, "usage-bootstrap-signing": "true"}
	for k, v := range changes {
		data[k] = v
	}
	return secret("bootstrap-token-abcdef", data)
}

func TestSignerOf(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	for _, test := range []struct {
		name      string
		secret    *v1.Secret
		signs     bool
		remaining time.Duration
	}{
		{"valid", token(nil), true, 0},
		{"no data", secret("bootstrap-token-abcdef", nil), false, 0},
		{"expires", token(map[string]string{"expiration": in(time.Hour)}), true, time.Hour},
		{"expires in another zone", token(map[string]string{"expiration": "2026-11-30T14:30:00+02:00"}), true, 30 * time.Minute},
		{"expires now", token(map[string]string{"expiration": in(0)}), false, 0},
		{"has expired", token(map[string]string{"expiration": in(-time.Second)}), false, 0},
		{"empty expiration", token(map[string]string{"expiration": ""}), true, 0},
		{"no time", token(map[string]string{"expiration": "soon"}), false, 0},
		{"no key", token(map[string]string{"token-secret": ""}), false, 0},
		{"no ID", token(map[string]string{"token-id": ""}), false, 0},
		{"another ID", token(map[string]string{"token-id": "abcdeg"}), false, 0},
		{"not for signing", token(map[string]string{"usage-bootstrap-signing": "false"}), false, 0},
		{"True", token(map[string]string{"usage-bootstrap-signing": "True"}), false, 0},
		{"1", token(map[string]string{"usage-bootstrap-signing": "1"}), false, 0},
		{"short name", secret("bootstrap-token-abcde", map[string]string{"token-id": "abcde", "token-secret": key, "usage-bootstrap-signing": "true"}), false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, ok := bootstraptoken.SignerOf(test.secret, now)
			if ok != test.signs || got.Remaining != test.remaining {
				t.Errorf("signs %t for %s, want %t for %s", ok, got.Remaining, test.signs, test.remaining)
			}
		})
	}
}

func TestSign(t *testing.T) {
	t.Parallel()
	signer, ok := bootstraptoken.SignerOf(token(nil), now)
	if !ok {
		t.Fatal("the token may not sign")
	}
	signature, err := signer.Sign(" x\n")
	if err != nil {
		t.Fatal(err)
	}
	if !jws.DetachedTokenIsValid(signature, " x\n", "abcdef", key) || jws.DetachedTokenIsValid(signature, "x", "abcdef", key) {
		t.Errorf("%s is no signature of the text as it is", signature)
	}
	if again, err := signer.Sign(" x\n"); err != nil || again != signature {
		t.Errorf("a second signature is %s, %v; the first was %s", again, err, signature)
	}
}

func TestTheKeyIsNotShown(t *testing.T) {
	t.Parallel()
	signer, ok := bootstraptoken.SignerOf(token(nil), now)
	if !ok {
		t.Fatal("the token may not sign")
	}
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(handler).Info("message", "signer", signer, "pointer", &signer, "all", []any{signer})
	}
	inJSON, err := json.Marshal(signer)
	if err != nil {
		t.Fatal(err)
	}
	shown := log.String() + string(inJSON)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		shown += fmt.Sprintf(format, signer) + fmt.Sprintf(format, &signer) + fmt.Sprintf(format, []bootstraptoken.Signer{signer})
	}
	if strings.Contains(shown, key) {
		t.Errorf("the key is in %s", shown)
	}
	if !strings.Contains(shown, "abcdef") {
		t.Errorf("the ID is not in %s", shown)
	}
}

// Whatever a Secret holds, what signs is a token that is named after its ID,
// and what it signs is valid by its key.
func FuzzSignerOf(f *testing.F) {
	f.Add("bootstrap-token-abcdef", "abcdef", key, "true", "")
	f.Add("bootstrap-token-abcdef", "abcdef", key, "true", "2026-11-30T14:30:00+02:00")
	f.Add("bootstrap-token-abcdef", "abcdeg", "\x00", "True", "soon")
	f.Add("bootstrap-token-abcdef\n", "abcdef\n", "", "", "9999-12-31T23:59:59Z")
	f.Fuzz(func(t *testing.T, name, id, key, usage, expiration string) {
		signer, ok := bootstraptoken.SignerOf(secret(name, map[string]string{
			"token-id": id, "token-secret": key, "usage-bootstrap-signing": usage, "expiration": expiration,
		}), now)
		if !ok {
			return
		}
		if signer.ID != id || name != "bootstrap-token-"+id || len(id) != 6 || key == "" || usage != "true" || signer.Remaining < 0 {
			t.Fatalf("%s signs: name %q, ID %q, usage %q, expiration %q", signer, name, id, usage, expiration)
		}
		if at, err := time.Parse(time.RFC3339, expiration); expiration != "" && (err != nil || !at.After(now)) {
			t.Fatalf("signs although it has expired at %q", expiration)
		}
		signature, err := signer.Sign("content")
		if err != nil {
			if strings.Contains(err.Error(), key) && len(key) > 6 {
				t.Fatal(errors.New("the error shows the key"))
			}
			return
		}
		if strings.Count(signature, ".") != 2 || !jws.DetachedTokenIsValid(signature, "content", id, key) {
			t.Fatalf("%q is no valid signature", signature)
		}
	})
}
