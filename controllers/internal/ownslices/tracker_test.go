package ownslices_test

import (
	"testing"

	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
)

var web = cache.NewObjectName("a", "web")

func at(uid types.UID, generation int64) *discovery.EndpointSlice {
	return &discovery.EndpointSlice{ObjectMeta: metav1.ObjectMeta{UID: uid, Generation: generation}}
}

// wants checks answers, which are true for what somebody else did.
func wants(t *testing.T, what string, got, want bool) {
	t.Helper()
	if got != want {
		t.Errorf("%s: by others %t, want %t", what, got, want)
	}
}

func TestTrackerTellsOwnWritesFromOthers(t *testing.T) {
	tracker := ownslices.NewTracker()
	wants(t, "a slice that nobody knows", tracker.Changed(web, at("1", 1)), true)
	tracker.Begin(web)
	tracker.Wrote(web, at("1", 2))
	wants(t, "the event of a write", tracker.Changed(web, at("1", 2)), false)
	wants(t, "an event before it", tracker.Changed(web, at("1", 1)), false)
	wants(t, "the reconcile", tracker.End(web), false)
	wants(t, "a late event of the write", tracker.Changed(web, at("1", 2)), false)
	wants(t, "a later event", tracker.Changed(web, at("1", 3)), true)
	wants(t, "a deletion", tracker.Gone(web, "1"), true)
}

// The watch may be faster than the answer.
func TestTrackerWaitsForAnswers(t *testing.T) {
	tracker := ownslices.NewTracker()
	tracker.Begin(web)
	wants(t, "an event before the answer", tracker.Changed(web, at("1", 1)), false)
	tracker.Wrote(web, at("1", 1))
	wants(t, "the reconcile", tracker.End(web), false)

	tracker.Begin(web)
	wants(t, "an event of a newer version", tracker.Changed(web, at("1", 2)), false)
	wants(t, "the reconcile", tracker.End(web), true)
	wants(t, "the same event, later", tracker.Changed(web, at("1", 2)), true)

	tracker.Begin(web)
	wants(t, "an event of another slice", tracker.Changed(web, at("2", 1)), false)
	wants(t, "its deletion", tracker.Gone(web, "2"), true)
	wants(t, "the reconcile", tracker.End(web), false)
}

func TestTrackerKnowsDeletions(t *testing.T) {
	tracker := ownslices.NewTracker()
	tracker.Begin(web)
	tracker.Wrote(web, at("1", 1))
	tracker.Deletes(web, "1")
	if !tracker.Deleted(web, "1") || tracker.Deleted(web, "2") {
		t.Error("which slices are deleted is not known")
	}
	wants(t, "an event of the deleted one", tracker.Changed(web, at("1", 2)), false)
	wants(t, "the reconcile", tracker.End(web), false)
	wants(t, "the deletion", tracker.Gone(web, "1"), false)
	if tracker.Deleted(web, "1") {
		t.Error("a slice that is gone is remembered")
	}

	tracker.Begin(web)
	tracker.Deletes(web, "2")
	tracker.Lost(web, "2")
	wants(t, "the reconcile", tracker.End(web), false)
	wants(t, "a deletion after one that failed", tracker.Gone(web, "2"), true)
}

func TestTrackerForgets(t *testing.T) {
	tracker := ownslices.NewTracker()
	tracker.Begin(web)
	tracker.Wrote(web, at("1", 1))
	tracker.End(web)
	tracker.Forget(web)
	wants(t, "a slice of a forgotten service", tracker.Changed(web, at("1", 1)), true)
}
