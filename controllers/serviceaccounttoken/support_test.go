package serviceaccounttoken_test

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// decode the first two parts of a token.
func decode(t *testing.T, token []byte) (header, claims map[string]any) {
	t.Helper()
	parts := strings.Split(string(token), ".")
	if len(parts) != 3 {
		t.Fatalf("a token of %d parts", len(parts))
	}
	for i, into := range []*map[string]any{&header, &claims} {
		decoded, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err == nil {
			err = json.Unmarshal(decoded, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return header, claims
}

// keyID of the public part of a private key in PEM.
func keyID(t *testing.T, key []byte) string {
	t.Helper()
	parsed, err := keyutil.ParsePublicKeysPEM(key)
	if err != nil || len(parsed) != 1 {
		t.Fatalf("%d public keys, %v", len(parsed), err)
	}
	der, err := x509.MarshalPKIXPublicKey(parsed[0])
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// authenticates waits until the API server takes a token for an account's.
func (w *world) authenticates(token []byte, account string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "authentication of "+account, func(ctx context.Context) error {
		review, err := w.Admin.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: string(token)},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		if !review.Status.Authenticated {
			return errors.New("it is refused: " + review.Status.Error)
		}
		if want := "system:serviceaccount:" + w.Namespace + ":" + account; review.Status.User.Username != want {
			return fmt.Errorf("it is that of %s", review.Status.User.Username)
		}
		return nil
	})
}
