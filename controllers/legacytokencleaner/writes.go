package legacytokencleaner

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/uidguard"
)

// mark a Secret invalid as of a date. It is not marked, and that is no error,
// when it is not any more what was judged: its token may just have been used.
func (c *cleaner) mark(ctx context.Context, secret *corev1.Secret, date string) (marked bool, err error) {
	patch, err := json.Marshal(coreac.Secret(secret.Name, secret.Namespace).
		WithUID(secret.UID).
		WithResourceVersion(secret.ResourceVersion).
		WithLabels(map[string]string{invalidSinceLabel: date}))
	if err != nil {
		return false, fmt.Errorf("encode a patch of secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	_, err = c.client.CoreV1().Secrets(secret.Namespace).Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if uidguard.Refused(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("mark secret %s/%s invalid: %w", secret.Namespace, secret.Name, err)
	}
	c.logger.Info("Token was not used for long and is marked invalid: the API server refuses it from now on",
		"secret", secret.Namespace+"/"+secret.Name)
	return true, nil
}

// remove a Secret. It stays, and that is no error, when it is not any more what was judged.
func (c *cleaner) remove(ctx context.Context, secret *corev1.Secret) (removed bool, err error) {
	err = c.client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if notfound.ByAPIServer(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	c.logger.Info("Secret of a token that was marked invalid long ago is deleted", "secret", secret.Namespace+"/"+secret.Name)
	return true, nil
}
