package serviceaccounttoken

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/tokensecrets"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// reconcileSecret fills a Secret, deletes one whose account is gone, and takes
// the reference to one that is gone from its account.
func (c *tokenController) reconcileSecret(ctx context.Context, key secretKey) (work.Result, error) {
	secret, err := c.secrets.Secrets(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return work.Result{}, fmt.Errorf("look up secret %s: %w", key.ObjectName, err)
	}
	if err != nil || secret.UID != key.uid {
		err := c.removeReference(ctx, key)
		if err == nil {
			c.known.remove(key)
		}
		return work.Result{}, err
	}
	if keyOf(secret) != key {
		c.known.remove(key) // it has another one now
	}
	if secret.DeletionTimestamp != nil || tokensecrets.AccountName(secret) == "" {
		return work.Result{}, nil // its end, or its change, brings it back
	}
	// What the Secret says now counts, not what it said when it was queued.
	ca := c.ownCA()
	account, err := c.accountOf(ctx, secret, len(lacks(secret, ca)) > 0)
	switch {
	case err != nil:
		return work.Result{}, err
	case account == nil:
		return work.Result{}, c.delete(ctx, secret)
	default:
		return work.Result{}, c.fill(ctx, secret, account, ca)
	}
}

// accountOf a Secret; nil when there is none.
//
// The cache may not know yet of one that was made just before the Secret, so
// that it cannot say that there is none. Nor can it say whose a Secret without a
// UID is that will be written: it may know an account of the name that is gone,
// and the Secret would be deleted as that one's.
func (c *tokenController) accountOf(ctx context.Context, secret *corev1.Secret, write bool) (*corev1.ServiceAccount, error) {
	name, uid := tokensecrets.AccountName(secret), tokensecrets.AccountUID(secret)
	if uid != "" || !write {
		account, err := c.accounts.ServiceAccounts(secret.Namespace).Get(name)
		if err == nil && is(account, uid) {
			return account, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("look up service account %s/%s: %w", secret.Namespace, name, err)
		}
	}
	return c.live(ctx, secret.Namespace, name, uid)
}

// live account, as the API server has it; nil when there is none.
func (c *tokenController) live(ctx context.Context, namespace, name string, uid types.UID) (*corev1.ServiceAccount, error) {
	account, err := c.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case notfound.ByAPIServer(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get service account %s/%s: %w", namespace, name, err)
	case !is(account, uid):
		return nil, nil
	default:
		return account, nil
	}
}

// is tells whether account is the one of a UID, of which an empty one is any.
func is(account *corev1.ServiceAccount, uid types.UID) bool { return uid == "" || account.UID == uid }

// delete a Secret as it was judged; the event of a change brings it back.
func (c *tokenController) delete(ctx context.Context, secret *corev1.Secret) error {
	err := c.client.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion},
	})
	if err != nil && !notfound.ByAPIServer(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// removeReference to a Secret that is gone from its account.
func (c *tokenController) removeReference(ctx context.Context, key secretKey) error {
	if key.account == "" {
		return nil
	}
	// The cache may be behind in what the account refers to, and may not know yet
	// of one that was made just before the Secret.
	account, err := c.live(ctx, key.Namespace, key.account, key.accountUID)
	if err != nil || account == nil {
		return err
	}
	refers := func(reference corev1.ObjectReference) bool { return reference.Name == key.Name }
	if !slices.ContainsFunc(account.Secrets, refers) {
		return nil
	}
	account.Secrets = slices.DeleteFunc(account.Secrets, refers)
	_, err = c.client.CoreV1().ServiceAccounts(key.Namespace).Update(ctx, account, metav1.UpdateOptions{})
	if err != nil && !notfound.ByAPIServer(err) {
		return fmt.Errorf("take secret %s from service account %s/%s: %w", key.Name, key.Namespace, key.account, err)
	}
	return nil
}

// reconcileAccount deletes the Secrets of an account that is gone.
func (c *tokenController) reconcileAccount(ctx context.Context, key accountKey) (work.Result, error) {
	account, err := c.accounts.ServiceAccounts(key.Namespace).Get(key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return work.Result{}, fmt.Errorf("look up service account %s: %w", key.ObjectName, err)
	}
	if err == nil && account.UID == key.uid {
		return work.Result{}, nil
	}
	found, err := c.indexer.ByIndex(accountIndex, key.ObjectName.String())
	if err != nil {
		return work.Result{}, fmt.Errorf("look up the secrets of service account %s: %w", key.ObjectName, err)
	}
	for _, obj := range found {
		secret, ok := tokenSecret(obj)
		if !ok || secret.DeletionTimestamp != nil {
			continue
		}
		switch tokensecrets.AccountUID(secret) {
		case key.uid:
			if err := c.delete(ctx, secret); err != nil {
				return work.Result{}, err
			}
		case "":
			// It may be meant for the next account of the name.
			c.secretQueue.Add(keyOf(secret))
		}
	}
	return work.Result{}, nil
}
