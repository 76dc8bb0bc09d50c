package serviceaccounttoken

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/tokensecrets"
)

// accountIndex has token Secrets by namespace and name of their service account.
const accountIndex = "serviceAccount"

func indexByAccount(obj any) ([]string, error) {
	secret, ok := obj.(*corev1.Secret)
	if !ok || tokensecrets.AccountName(secret) == "" {
		return nil, nil
	}
	return []string{cache.NewObjectName(secret.Namespace, tokensecrets.AccountName(secret)).String()}, nil
}

// secretKey holds all that has to be known of a Secret when it is gone.
type secretKey struct {
	cache.ObjectName
	uid types.UID
	// account is the name of its service account, and accountUID the UID, empty
	// for whatever account has the name.
	account    string
	accountUID types.UID
}

func keyOf(secret *corev1.Secret) secretKey {
	return secretKey{
		ObjectName: cache.MetaObjectToName(secret),
		uid:        secret.UID,
		account:    tokensecrets.AccountName(secret),
		accountUID: tokensecrets.AccountUID(secret),
	}
}

// accountKey is a service account that may be gone.
type accountKey struct {
	cache.ObjectName
	uid types.UID
}

func (c *tokenController) secretHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if secret, ok := tokenSecret(obj); ok {
				c.known.add(keyOf(secret))
				c.secretQueue.AddEvent(keyOf(secret), isInInitialList)
			}
		},
		UpdateFunc: func(before, now any) {
			old, wasToken := tokenSecret(before)
			secret, isToken := tokenSecret(now)
			if wasToken {
				c.known.remove(keyOf(old))
			}
			if isToken {
				c.known.add(keyOf(secret))
				c.secretQueue.Add(keyOf(secret))
			}
			if wasToken && isToken && old.UID != secret.UID {
				// One was deleted and another made while no watch was there to tell.
				c.secretQueue.Add(keyOf(old))
			}
		},
		DeleteFunc: func(obj any) {
			if secret, ok := tokenSecret(unwrap(obj)); ok {
				c.known.remove(keyOf(secret))
				c.secretQueue.Add(keyOf(secret))
			}
		},
	}
}

// accountHandler lets service accounts be looked at that are gone. Nothing
// depends on how the others change.
func (c *tokenController) accountHandler() cache.ResourceEventHandler {
	gone := func(account *corev1.ServiceAccount) {
		c.accountQueue.Add(accountKey{ObjectName: cache.MetaObjectToName(account), uid: account.UID})
	}
	return cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, now any) {
			old, ok := before.(*corev1.ServiceAccount)
			if !ok {
				return
			}
			if account, ok := now.(*corev1.ServiceAccount); ok && old.UID != account.UID {
				gone(old)
			}
		},
		DeleteFunc: func(obj any) {
			if account, ok := unwrap(obj).(*corev1.ServiceAccount); ok {
				gone(account)
			}
		},
	}
}

func tokenSecret(obj any) (*corev1.Secret, bool) {
	secret, ok := obj.(*corev1.Secret)
	return secret, ok && secret.Type == corev1.SecretTypeServiceAccountToken
}

// unwrap what was deleted while no watch was there to tell.
func unwrap(obj any) any {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return obj
}
