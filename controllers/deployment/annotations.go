package deployment

import (
	"math"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// Annotations of Deployments and their ReplicaSets.
const (
	revisionAnnotation        = "deployment.kubernetes.io/revision"
	revisionHistoryAnnotation = "deployment.kubernetes.io/revision-history"
	desiredReplicasAnnotation = "deployment.kubernetes.io/desired-replicas"
	maxReplicasAnnotation     = "deployment.kubernetes.io/max-replicas"

	// revisionHistoryLength bounds the annotation, in characters.
	revisionHistoryLength = 2000
)

// keptApart are annotations that mean one object only and are not copied
// between a Deployment and its ReplicaSets.
func keptApart(key string) bool {
	switch key {
	case corev1.LastAppliedConfigAnnotation, revisionAnnotation, revisionHistoryAnnotation,
		desiredReplicasAnnotation, maxReplicasAnnotation, appsv1.DeprecatedRollbackTo:
		return true
	}
	return false
}

// revisionOf returns the revision of a ReplicaSet: 0 if it has none, false if
// it cannot be read.
func revisionOf(rs *appsv1.ReplicaSet) (int64, bool) {
	text, ok := rs.Annotations[revisionAnnotation]
	if !ok {
		return 0, true
	}
	revision, err := strconv.ParseInt(text, 10, 64)
	return revision, err == nil
}

// annotate copies the Deployment's annotations to its new ReplicaSet and raises
// its revision to revision. A revision is never lowered: older ReplicaSets may
// have been deleted meanwhile. One that cannot be read is somebody's own doing;
// then nothing is touched.
func (r *rollout) annotate(rs *appsv1.ReplicaSet, revision int64) bool {
	current, readable := revisionOf(rs)
	if !readable {
		return false
	}
	changed := false
	set := func(key, value string) {
		if present, ok := rs.Annotations[key]; ok && present == value {
			return
		}
		if rs.Annotations == nil {
			rs.Annotations = map[string]string{}
		}
		rs.Annotations[key] = value
		changed = true
	}
	for key, value := range r.d.Annotations {
		if !keptApart(key) {
			set(key, value)
		}
	}
	if current < revision {
		if former, ok := rs.Annotations[revisionAnnotation]; ok {
			set(revisionHistoryAnnotation, appendRevision(rs.Annotations[revisionHistoryAnnotation], former))
		}
		set(revisionAnnotation, strconv.FormatInt(revision, 10))
	}
	return changed
}

// appendRevision adds revision to a comma list, and drops the oldest entries
// that it has no room for.
func appendRevision(history, revision string) string {
	if history == "" {
		return revision
	}
	history += "," + revision
	for len(history) > revisionHistoryLength {
		_, rest, more := strings.Cut(history, ",")
		if !more {
			return ""
		}
		history = rest
	}
	return history
}

// setSizeAnnotations keeps, with the size, what it was derived from, so that a
// later reconcile can tell a scaling from a rollout, and in what proportion to scale.
func setSizeAnnotations(rs *appsv1.ReplicaSet, b bounds) bool {
	desired := strconv.FormatInt(int64(b.replicas), 10)
	most := strconv.FormatInt(int64(b.replicas)+int64(b.surge), 10)
	if rs.Annotations[desiredReplicasAnnotation] == desired && rs.Annotations[maxReplicasAnnotation] == most {
		return false
	}
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	rs.Annotations[desiredReplicasAnnotation] = desired
	rs.Annotations[maxReplicasAnnotation] = most
	return true
}

// replicasAnnotation reads one of the size annotations; false if it is missing
// or not a number of replicas.
func replicasAnnotation(rs *appsv1.ReplicaSet, key string) (int64, bool) {
	number, err := strconv.ParseInt(rs.Annotations[key], 10, 64)
	if err != nil || number < 0 || number > math.MaxInt32 {
		return 0, false
	}
	return number, true
}

// setRevision takes the new ReplicaSet's revision over.
func (r *rollout) setRevision(revision string) {
	if revision == "" || r.d.Annotations[revisionAnnotation] == revision {
		return
	}
	if r.d.Annotations == nil {
		r.d.Annotations = map[string]string{}
	}
	r.d.Annotations[revisionAnnotation] = revision
}
