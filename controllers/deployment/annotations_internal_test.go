package deployment

import (
	"maps"
	"math"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestAnnotate(t *testing.T) {
	own := map[string]string{
		"team": "x", corev1.LastAppliedConfigAnnotation: "{}", revisionAnnotation: "8", revisionHistoryAnnotation: "1",
		desiredReplicasAnnotation: "1", maxReplicasAnnotation: "1", appsv1.DeprecatedRollbackTo: "1",
	}
	for name, test := range map[string]struct {
		before   map[string]string
		revision int64
		after    map[string]string
		changed  bool
	}{
		"a new one": {nil, 1, map[string]string{"team": "x", revisionAnnotation: "1"}, true},
		"raised": {map[string]string{"team": "x", revisionAnnotation: "2"}, 5,
			map[string]string{"team": "x", revisionAnnotation: "5", revisionHistoryAnnotation: "2"}, true},
		"raised again": {map[string]string{"team": "x", revisionAnnotation: "5", revisionHistoryAnnotation: "2"}, 7,
			map[string]string{"team": "x", revisionAnnotation: "7", revisionHistoryAnnotation: "2,5"}, true},
		"never lowered": {map[string]string{"team": "x", revisionAnnotation: "5"}, 3,
			map[string]string{"team": "x", revisionAnnotation: "5"}, false},
		"overwritten, and nothing removed": {map[string]string{"team": "y", "other": "z", revisionAnnotation: "5"}, 5,
			map[string]string{"team": "x", "other": "z", revisionAnnotation: "5"}, true},
		"an unreadable revision is left alone": {map[string]string{revisionAnnotation: "five"}, 5,
			map[string]string{revisionAnnotation: "five"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := rolling(1, "1", "0")
			d.Annotations = own
			rs := set("new", 0, 1, 1)
			rs.Annotations = test.before
			if got := newRollout(d).annotate(rs, test.revision); got != test.changed {
				t.Errorf("changed: %t", got)
			}
			if !maps.Equal(rs.Annotations, test.after) {
				t.Errorf("got %v, want %v", rs.Annotations, test.after)
			}
		})
	}
}

func TestNextRevision(t *testing.T) {
	for name, test := range map[string]struct {
		old  []*appsv1.ReplicaSet
		want int64
	}{
		"the first":             {nil, 1},
		"after the highest":     {[]*appsv1.ReplicaSet{ofRevision(set("b", 1, 0, 0), 7), ofRevision(set("c", 2, 0, 0), 3)}, 8},
		"a missing one is zero": {[]*appsv1.ReplicaSet{set("b", 1, 0, 0)}, 1},
		"an unreadable one is skipped": {[]*appsv1.ReplicaSet{
			annotatedSet(set("b", 1, 0, 0), revisionAnnotation, "x"), ofRevision(set("c", 2, 0, 0), 2)}, 3},
		"the new one does not count": {[]*appsv1.ReplicaSet{ofRevision(set("new", 0, 0, 0), 9), ofRevision(set("c", 2, 0, 0), 2)}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newRollout(rolling(1, "1", "0"), test.old...).nextRevision(); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestAppendRevision(t *testing.T) {
	full := strings.Repeat("1234,", 399) + "12345" // 2000 characters
	for name, test := range map[string]struct{ history, revision, want string }{
		"the first":               {"", "1", "1"},
		"another":                 {"1", "3", "1,3"},
		"just room enough":        {full[5:], "123", full[5:] + ",123"},
		"the oldest makes room":   {full, "7", full[5:] + ",7"},
		"as many as it takes":     {full, "1234567", full[10:] + ",1234567"},
		"an entry without an end": {strings.Repeat("1", 2000), "7", "7"},
	} {
		t.Run(name, func(t *testing.T) {
			got := appendRevision(test.history, test.revision)
			if got != test.want || len(got) > revisionHistoryLength {
				t.Errorf("got %d characters, %s", len(got), got)
			}
		})
	}
}

func TestReplicasAnnotation(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "7": 7, strconv.Itoa(math.MaxInt32): math.MaxInt32, strconv.Itoa(math.MaxInt32 + 1): -1, "-1": -1, "x": -1, "": -1,
	} {
		t.Run(text, func(t *testing.T) {
			got, ok := replicasAnnotation(annotatedSet(set("new", 0, 1, 1), maxReplicasAnnotation, text), maxReplicasAnnotation)
			if ok != (want >= 0) || ok && got != want {
				t.Errorf("got %d, %t", got, ok)
			}
		})
	}
}
