package job

import (
	"log/slog"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// The API server stores no such mode, but a later one may.
func TestAnUnknownCompletionModeIsToldAndWaits(t *testing.T) {
	t.Parallel()
	job := testJob(1, 1)
	job.Spec.CompletionMode = ptr.To[batchv1.CompletionMode]("Sorted")
	events := record.NewFakeRecorder(10)
	c := &jobController{
		jobs:    cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
		control: podcontrol.Control{Events: events},
		clock:   clock.RealClock{},
		logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
		notes:   newNotes(),
		unsure:  unsettled.New(nil, clock.RealClock{}),
		doomed:  podcontrol.NewDoomed(),
	}
	if err := c.jobs.Add(job); err != nil {
		t.Fatal(err)
	}
	// Without a client, anything more than the event is a panic.
	result, err := c.reconcile(t.Context(), cache.MetaObjectToName(job))
	if err != nil || result != (work.Result{}) {
		t.Errorf("got %v, %v", result, err)
	}
	want := "Warning UnknownCompletionMode Skipped Job sync because completion mode is unknown"
	if got := <-events.Events; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
}

func TestNotesAreOfOneUID(t *testing.T) {
	t.Parallel()
	n, key := newNotes(), cache.NewObjectName("ns", "job")
	n.setBackOff(key, backOff{uid: "old", failures: 5})
	if record, known := n.backOff(key, "old"); !known || record.failures != 5 {
		t.Errorf("got %+v, %t", record, known)
	}
	if _, known := n.backOff(key, "new"); known {
		t.Error("a namesake inherits the back-off")
	}
	n.forget(key)
	if _, known := n.backOff(key, "old"); known {
		t.Error("the back-off is kept")
	}
}
