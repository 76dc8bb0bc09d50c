package serviceaccounttoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/keymaterial"
)

// issuer of tokens in Secrets, by which API servers know them.
const issuer = "kubernetes/serviceaccount"

// claims of a token. It has no time, and no audience: it is good until its
// Secret, or its account, is gone.
type claims struct {
	Issuer      string `json:"iss"`
	Namespace   string `json:"kubernetes.io/serviceaccount/namespace"`
	SecretName  string `json:"kubernetes.io/serviceaccount/secret.name"`
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
	Subject     string `json:"sub"`
}

// signer makes tokens. It may be used concurrently.
type signer struct {
	algorithm jose.SignatureAlgorithm
	keyID     string
	jose      jose.Signer
}

// parseSigner is for keymaterial.Options.
func parseSigner(contents [][]byte, _ time.Time) (*signer, []string, error) {
	key, err := keymaterial.ParsePrivateKey(contents[0])
	if err != nil {
		return nil, nil, err
	}
	parsed, err := newSigner(key)
	return parsed, nil, err
}

func newSigner(key crypto.Signer) (*signer, error) {
	algorithm, err := algorithmOf(key)
	if err != nil {
		return nil, err
	}
	keyID, err := keyIDOf(key.Public())
	if err != nil {
		return nil, err
	}
	made, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: keyID}}, nil)
	if err != nil {
		return nil, fmt.Errorf("make a signer: %w", err)
	}
	s := &signer{algorithm: algorithm, keyID: keyID, jose: made}
	if _, err := s.sign(claims{}); err != nil { // a key that is too short, for one
		return nil, err
	}
	return s, nil
}

func algorithmOf(key crypto.Signer) (jose.SignatureAlgorithm, error) {
	switch key := key.(type) {
	case *rsa.PrivateKey:
		return jose.RS256, nil
	case *ecdsa.PrivateKey:
		switch key.Curve {
		case elliptic.P256():
			return jose.ES256, nil
		case elliptic.P384():
			return jose.ES384, nil
		case elliptic.P521():
			return jose.ES512, nil
		}
		return "", errors.New("a key of its curve signs no token")
	default:
		return "", errors.New("a key of its kind signs no token")
	}
}

// keyIDOf is by which API servers find the public key: the SHA-256 of its PKIX
// form, in unpadded URL-safe base64.
func keyIDOf(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("encode the public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

// token of account for secret.
func (s *signer) token(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error) {
	token, err := s.sign(claims{
		Issuer:      issuer,
		Namespace:   account.Namespace,
		SecretName:  secret.Name,
		AccountName: account.Name,
		AccountUID:  string(account.UID),
		Subject:     serviceaccount.MakeUsername(account.Namespace, account.Name),
	})
	if err != nil {
		return "", fmt.Errorf("make a token for secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return token, nil
}

func (s *signer) sign(c claims) (string, error) {
	token, err := jwt.Signed(s.jose).Claims(c).Serialize()
	if err != nil {
		return "", fmt.Errorf("sign with key %s: %w", s.keyID, err)
	}
	return token, nil
}
