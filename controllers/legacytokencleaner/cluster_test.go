package legacytokencleaner_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/legacytokencleaner"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// A token that was used since the cache saw its Secret is not marked.
func TestASecretThatChangesBeforeItsMarkIsNotMarked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "s")
	w.secret("s")
	remove := w.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb == "patch" && r.Name == "s" {
			w.label("s", lastUsed, w.today())
		}
	})
	w.start()
	remove()
	if writes := w.writes("s"); len(writes) != 1 || writes[0].Code != http.StatusConflict {
		t.Errorf("writes: %+v", writes)
	}
	w.pass()
	w.marks("s", "")
}

// A pod that the cache does not show yet keeps its Secret.
func TestAPodThatIsNotSeenYetKeepsItsSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "s", "unused")
	w.start()
	w.Proxy.DelayWatches(corev1.Resource("pods"), 2*time.Second)
	w.pod("p", corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: "s"},
	}}}})
	w.secret("s")
	w.secret("unused")
	w.passUntil("unused", w.today())
	w.marks("s", "")
}

// A Secret that cannot be marked keeps no other from it, and is tried again
// before the next pass is due.
func TestAPassInWhichSomethingFailedIsRepeatedSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "refused", "other")
	w.secret("refused")
	w.secret("other")
	stop := w.Proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == "patch" && r.Name == "refused" }, http.StatusForbidden, 0)
	w.controller = w.Start(legacytokencleaner.Descriptor(), section(24*time.Hour, period))
	w.passed(1)
	w.marks("refused", "", "other", w.today())
	if status := w.controller.Work(); status.LastError == "" {
		t.Error("the error is not shown")
	}
	harness.Throughout(t, 300*time.Millisecond, "pause", func(context.Context) error {
		if passes := w.passes(); passes != 1 {
			return fmt.Errorf("%d passes", passes)
		}
		return nil
	})
	stop()
	w.pass() // a minute later
	w.marks("refused", w.today())
}

func TestPeriodAndIntervalAreLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "s")
	w.secret("s")
	w.controller = w.Start(legacytokencleaner.Descriptor(), section(24*time.Hour, 72*time.Hour))
	w.passed(1)
	w.marks("s", "")
	w.controller.ApplyLive(section(interval, period))
	w.passed(2)
	w.marks("s", w.today())
	w.label("s", invalidSince, longAgo)
	w.passUntil("s", "") // at the new interval
}

// Nobody needs to see, or keep, Secrets that are no tokens.
func TestOnlyTokenSecretsAreWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	descriptor := legacytokencleaner.Descriptor()
	construct := descriptor.New
	var leased []string
	descriptor.New = func(env controller.Env, section schema.Section) (*controller.Controller, error) {
		made, err := construct(env, section)
		leased = env.Informers.Informers()
		return made, err
	}
	w.Start(descriptor, section(interval, period))
	want := []string{"pods.v1", "secrets.v1 (type=kubernetes.io/service-account-token)", "serviceaccounts.v1"}
	if !slices.Equal(leased, want) {
		t.Errorf("informers %v, want %v", leased, want)
	}
}
