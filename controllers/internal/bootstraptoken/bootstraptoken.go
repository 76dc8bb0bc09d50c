// Package bootstraptoken reads bootstrap tokens from their Secrets. What is
// secret about a token does not leave it: not in logs, errors or output of any kind.
package bootstraptoken

import (
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
	"k8s.io/cluster-bootstrap/util/secrets"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

// Namespace of all bootstrap tokens.
const Namespace = metav1.NamespaceSystem

// Resource of bootstrap tokens.
var Resource = v1.SchemeGroupVersion.WithResource("secrets")

// Informer leases the informer of the Secrets that hold bootstrap tokens. It
// has no other Secret.
func Informer(lease *informers.Lease) (*informers.Informer, error) {
	return lease.SelectedInformer(Resource, informers.Selection{
		Namespace: Namespace, FieldSelector: "type=" + string(api.SecretTypeBootstrapToken),
	})
}

// Expiry tells how long after now the token of secret is valid; 0 when it is
// for ever. A token whose expiration cannot be read has expired.
func Expiry(secret *v1.Secret, now time.Time) (remaining time.Duration, expired bool) {
	return secrets.GetExpiration(secret, now)
}

// Signer is a token that may sign.
type Signer struct {
	// ID is public.
	ID string
	// Remaining is how long the token is valid; 0 when it is for ever.
	Remaining time.Duration

	key string
}

// SignerOf returns the token of secret if it may sign at now: it is named after
// its ID, has a key, has not expired, and its usage says so with "true" exactly.
func SignerOf(secret *v1.Secret, now time.Time) (Signer, bool) {
	id, ok := secrets.ParseName(secret.Name)
	if !ok || secrets.GetData(secret, api.BootstrapTokenIDKey) != id {
		return Signer{}, false
	}
	key := secrets.GetData(secret, api.BootstrapTokenSecretKey)
	if key == "" || secrets.GetData(secret, api.BootstrapTokenUsageSigningKey) != "true" {
		return Signer{}, false
	}
	remaining, expired := Expiry(secret, now)
	if expired {
		return Signer{}, false
	}
	return Signer{ID: id, Remaining: remaining, key: key}, true
}

// Sign returns the detached JWS of content: HS256 with the token's key. It is
// the same each time.
func (s Signer) Sign(content string) (string, error) {
	signature, err := jws.ComputeDetachedSignature(content, s.ID, s.key)
	if err != nil {
		return "", fmt.Errorf("sign with bootstrap token %s: %w", s.ID, err)
	}
	return signature, nil
}

// String shows the ID only.
func (s Signer) String() string { return "bootstrap token " + s.ID }

// GoString shows the ID only.
func (s Signer) GoString() string { return s.String() }

// LogValue shows the ID only.
func (s Signer) LogValue() slog.Value { return slog.StringValue(s.String()) }
