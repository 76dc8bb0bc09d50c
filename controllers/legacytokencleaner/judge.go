package legacytokencleaner

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The API server writes lastUsedLabel when it sees a token, and refuses the
// token of a Secret with invalidSinceLabel. Both are dates.
const (
	lastUsedLabel     = "kubernetes.io/legacy-token-last-used"
	invalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"
)

// verdict on a Secret.
type verdict int

const (
	keep verdict = iota
	// mark it invalid.
	mark
	remove
)

// limit is the moment since when a token must not have been used.
type limit struct {
	at time.Time
	// date of that moment. What happened on this day may have happened after it.
	date string
}

func limitOf(now time.Time, period time.Duration) limit {
	at := now.Add(-period)
	return limit{at: at, date: dateOf(at)}
}

func dateOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// parseDate reads YYYY-MM-DD. Dates of this form are ordered as their texts are.
func parseDate(text string) (time.Time, bool) {
	date, err := time.Parse(time.DateOnly, text)
	return date, err == nil
}

// trackedFor tells whether uses have been tracked for a period, given the date
// on which all API servers have begun; ok is false when that is no date. Uses of
// that day may be missing, so that the next one counts.
func trackedFor(since string, now time.Time, period time.Duration) (long, ok bool) {
	date, ok := parseDate(since)
	return ok && !now.Before(date.AddDate(0, 0, 1).Add(period)), ok
}

// unusedSince tells whether the token of a Secret has not been used since
// limit, as far as the Secret itself shows. A problem is why that cannot be
// told. A token without a last use has not been used since uses are tracked.
func unusedSince(secret *corev1.Secret, limit limit) (unused bool, problem string) {
	if secret.Type != corev1.SecretTypeServiceAccountToken || secret.DeletionTimestamp != nil ||
		!secret.CreationTimestamp.Time.Before(limit.at) {
		return false, ""
	}
	lastUsed, ok := secret.Labels[lastUsedLabel]
	if !ok {
		return true, ""
	}
	if _, ok := parseDate(lastUsed); !ok {
		return false, fmt.Sprintf("label %s is %q, which is no date", lastUsedLabel, lastUsed)
	}
	return lastUsed < limit.date, ""
}

// markOrRemove is for a Secret that nobody needs.
func markOrRemove(secret *corev1.Secret, limit limit) verdict {
	invalidSince := secret.Labels[invalidSinceLabel]
	if _, ok := parseDate(invalidSince); !ok {
		return mark
	}
	if invalidSince >= limit.date {
		return keep
	}
	return remove
}
