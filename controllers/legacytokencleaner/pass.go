package legacytokencleaner

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/tokensecrets"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

const (
	// trackingConfigMap, in kube-system, tells since when all API servers have
	// noted the last use of tokens.
	trackingConfigMap = "kube-apiserver-legacy-service-account-token-tracking"
	sinceKey          = "since"
)

// reconcile makes one pass, and asks for the next one.
func (c *cleaner) reconcile(ctx context.Context, _ passKey) (work.Result, error) {
	section := c.section.Load()
	err := c.pass(ctx, section.CleanUpPeriod.Duration)
	return work.Result{RequeueAfter: section.Interval.Duration}, err
}

// pass looks at all token Secrets once.
func (c *cleaner) pass(ctx context.Context, period time.Duration) error {
	now := c.clock.Now().UTC()
	tracked, err := c.trackedLongEnough(ctx, now, period)
	if err != nil || !tracked {
		return err
	}
	// A pod that uses a Secret, or a use of its token, may be newer than the caches.
	if err := c.refresh(ctx, now); err != nil {
		return fmt.Errorf("catch up before token secrets are judged: %w", err)
	}
	secrets, err := c.secrets.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list token secrets: %w", err)
	}
	references, limit := references{pods: c.pods}, limitOf(now, period)
	var marked, deleted int
	var errs []error
	for _, secret := range secrets {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		verdict, err := c.judge(secret, limit, &references)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		switch verdict {
		case keep:
		case mark:
			changed, err := c.mark(ctx, secret, dateOf(now))
			errs = append(errs, err)
			if changed {
				marked++
			}
		case remove:
			changed, err := c.remove(ctx, secret)
			errs = append(errs, err)
			if changed {
				deleted++
			}
		}
	}
	if marked+deleted > 0 {
		c.logger.Info("Unused tokens were cleaned up", "markedInvalid", marked, "deleted", deleted)
	}
	return errors.Join(errs...)
}

// refresh the caches with what the API server holds now.
func (c *cleaner) refresh(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	return c.catchUp(ctx, now)
}

// trackedLongEnough tells whether a token that was used within period is
// certain to say so.
func (c *cleaner) trackedLongEnough(ctx context.Context, now time.Time, period time.Duration) (bool, error) {
	tracking, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, trackingConfigMap, metav1.GetOptions{})
	if notfound.ByAPIServer(err) {
		c.logger.Info("No token is cleaned up: the API server does not say since when it tracks their use", "configMap", trackingConfigMap)
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get config map %s: %w", trackingConfigMap, err)
	}
	long, ok := trackedFor(tracking.Data[sinceKey], now, period)
	if !ok {
		c.logger.Warn("No token is cleaned up: the date since when their use is tracked cannot be read",
			"configMap", trackingConfigMap, sinceKey, tracking.Data[sinceKey])
	}
	return long, nil
}

// judge says what is to be done about a token Secret.
func (c *cleaner) judge(secret *corev1.Secret, limit limit, references *references) (verdict, error) {
	unused, problem := unusedSince(secret, limit)
	if problem != "" {
		c.logger.Warn("Token secret is kept", "secret", secret.Namespace+"/"+secret.Name, "because", problem)
	}
	if !unused {
		return keep, nil
	}
	generated, err := c.isGenerated(secret)
	if err != nil || !generated {
		return keep, err
	}
	referred, err := references.to(secret)
	if err != nil || referred {
		return keep, err
	}
	return markOrRemove(secret, limit), nil
}

// isGenerated tells whether the cluster has made the Secret, by what it left
// behind: the service account lists it.
func (c *cleaner) isGenerated(secret *corev1.Secret) (bool, error) {
	account, err := c.accounts.ServiceAccounts(secret.Namespace).Get(tokensecrets.AccountName(secret))
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up the service account of secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if uid := tokensecrets.AccountUID(secret); uid != "" && uid != account.UID {
		return false, nil
	}
	for _, listed := range account.Secrets {
		if listed.Name == secret.Name {
			return true, nil
		}
	}
	return false, nil
}
