package serviceaccounttoken

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// immutableReason is the reason of the event about a Secret that cannot be filled.
const immutableReason = "ImmutableTokenSecret"

// ownCA is what each Secret gets; empty when there is none to give.
func (c *tokenController) ownCA() []byte { return []byte(c.ca.Current().PEM) }

// fill a Secret with what it lacks. It is written as it was judged: when it has
// changed since, nothing is, and the event of the change brings it back. So no
// two tokens are ever put into one.
func (c *tokenController) fill(ctx context.Context, cached *corev1.Secret, account *corev1.ServiceAccount, ca []byte) error {
	missing := lacks(cached, ca)
	if len(missing) == 0 {
		return nil
	}
	if cached.Immutable != nil && *cached.Immutable {
		c.reportImmutable(cached, missing)
		return nil
	}
	secret := cached.DeepCopy()
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	for _, name := range missing {
		switch name {
		case corev1.ServiceAccountRootCAKey:
			secret.Data[name] = ca
		case corev1.ServiceAccountNamespaceKey:
			secret.Data[name] = []byte(secret.Namespace)
		case corev1.ServiceAccountTokenKey:
			token, err := c.signer.Current().token(account, secret)
			if err != nil {
				return err
			}
			secret.Data[name] = []byte(token)
		}
	}
	if secret.Annotations == nil {
		secret.Annotations = map[string]string{}
	}
	secret.Annotations[corev1.ServiceAccountNameKey] = account.Name
	secret.Annotations[corev1.ServiceAccountUIDKey] = string(account.UID)
	_, err := c.client.CoreV1().Secrets(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	if err != nil && !notfound.ByAPIServer(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("fill secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// lacks names the data that a Secret has to get. Its own namespace and token
// are kept whatever they are. An empty ca asks for none.
func lacks(secret *corev1.Secret, ca []byte) (missing []string) {
	if len(ca) > 0 && !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], ca) {
		missing = append(missing, corev1.ServiceAccountRootCAKey)
	}
	if len(secret.Data[corev1.ServiceAccountNamespaceKey]) == 0 {
		missing = append(missing, corev1.ServiceAccountNamespaceKey)
	}
	if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		missing = append(missing, corev1.ServiceAccountTokenKey)
	}
	return missing
}

// reportImmutable says what only the Secret's owner can mend.
func (c *tokenController) reportImmutable(secret *corev1.Secret, missing []string) {
	c.logger.Warn("Token secret is immutable and cannot be filled: delete it, and make it anew without immutable",
		"secret", cache.MetaObjectToName(secret).String(), "missing", missing)
	c.events.Eventf(secret, corev1.EventTypeWarning, immutableReason,
		"is immutable, so that %s cannot be filled in: delete it, and make it anew without immutable", strings.Join(missing, ", "))
}
