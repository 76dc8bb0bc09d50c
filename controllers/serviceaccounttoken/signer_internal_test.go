package serviceaccounttoken

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pemOf(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func ecdsaKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestKeys(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", UID: "u"}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"}}
	p256, p384, p521 := ecdsaKey(t, elliptic.P256()), ecdsaKey(t, elliptic.P384()), ecdsaKey(t, elliptic.P521())
	tests := []struct {
		name      string
		file      []byte
		public    any
		algorithm jose.SignatureAlgorithm
		problem   string
	}{
		{"RSA", pemOf(t, rsaKey), &rsaKey.PublicKey, jose.RS256, ""},
		{"P-256", pemOf(t, p256), &p256.PublicKey, jose.ES256, ""},
		{"P-384", pemOf(t, p384), &p384.PublicKey, jose.ES384, ""},
		{"P-521", pemOf(t, p521), &p521.PublicKey, jose.ES512, ""},
		{"P-224", pemOf(t, ecdsaKey(t, elliptic.P224())), nil, "", "curve"},
		{"Ed25519", pemOf(t, edKey), nil, "", "kind"},
		{"nothing", nil, nil, "", "no private key"},
		{"no key", []byte("hello"), nil, "", "no private key"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			signer, _, err := parseSigner([][]byte{test.file}, time.Time{})
			if test.problem != "" {
				if err == nil || !strings.Contains(err.Error(), test.problem) {
					t.Errorf("error %v, want one about %s", err, test.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if signer.algorithm != test.algorithm {
				t.Errorf("algorithm %s, want %s", signer.algorithm, test.algorithm)
			}
			token, err := signer.token(account, secret)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{test.algorithm})
			if err != nil {
				t.Fatal(err)
			}
			payload, err := parsed.Verify(test.public)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(payload, []byte(`"sub":"system:serviceaccount:n:a"`)) {
				t.Errorf("payload %s", payload)
			}
		})
	}
}

// FuzzParseSigner: whatever a file holds, it is not told to anybody.
func FuzzParseSigner(f *testing.F) {
	f.Add(pemOf(f, ecdsaKey(f, elliptic.P256())))
	f.Add([]byte("-----BEGIN RSA PRIVATE KEY-----\nc2VjcmV0\n-----END RSA PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0\n-----END EC PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		signer, warnings, err := parseSigner([][]byte{file}, time.Time{})
		if (err == nil) == (signer == nil) {
			t.Errorf("signer %v, error %v", signer != nil, err)
		}
		if len(warnings) > 0 {
			t.Errorf("warnings %q", warnings)
		}
		for _, line := range bytes.Split(file, []byte("\n")) {
			if err != nil && len(line) > 20 && !bytes.HasPrefix(line, []byte("-----")) && bytes.Contains([]byte(err.Error()), line) {
				t.Error("the error holds a line of the file")
			}
		}
	})
}

func TestLacks(t *testing.T) {
	t.Parallel()
	full := map[string][]byte{"ca.crt": []byte("ca"), "namespace": []byte("x"), "token": []byte("t")}
	without := func(key string) map[string][]byte {
		some := map[string][]byte{}
		for k, v := range full {
			if k != key {
				some[k] = v
			}
		}
		return some
	}
	tests := []struct {
		name string
		data map[string][]byte
		ca   string
		want string
	}{
		{"nothing", full, "ca", ""},
		{"everything", nil, "ca", "ca.crt namespace token"},
		{"everything, without a CA to give", nil, "", "namespace token"},
		{"a CA that nobody can compare", full, "", ""},
		{"another CA", full, "other", "ca.crt"},
		{"no namespace", without("namespace"), "ca", "namespace"},
		{"no token", without("token"), "ca", "token"},
		{"an empty token", map[string][]byte{"ca.crt": []byte("ca"), "namespace": []byte("x"), "token": {}}, "ca", "token"},
	}
	for _, test := range tests {
		if got := strings.Join(lacks(&corev1.Secret{Data: test.data}, []byte(test.ca)), " "); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
