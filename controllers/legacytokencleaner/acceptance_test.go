package legacytokencleaner_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/legacytokencleaner"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance01_AnUnusedTokenIsMarkedAndNotDeletedToday(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "s")
	w.secret("s")
	w.start()
	w.marks("s", w.today())
	w.pass()
	w.pass()
	w.marks("s", w.today())
	if writes := w.writes("s"); len(writes) != 1 {
		t.Errorf("writes for one mark: %+v", writes)
	}
}

func TestAcceptance02_ATokenThatWasMarkedLongAgoIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "s")
	w.secret("s")
	w.start()
	w.marks("s", w.today())
	w.label("s", invalidSince, longAgo)
	w.passUntil("s", "")
}

func TestAcceptance03_AListedSecretOnlyIsMarked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "other", "generated")
	w.secret("s")
	w.secret("generated")
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}}) // listed, and no token
	w.start()
	w.pass()
	w.marks("s", "", "other", "", "generated", w.today())
}

func TestAcceptance04_APodThatHasEndedKeepsItsSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "s")
	w.secret("s")
	w.pod("p", corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: "s"},
	}}}})
	pod, err := w.Admin.CoreV1().Pods(w.Namespace).Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodSucceeded
	if _, err := w.Admin.CoreV1().Pods(w.Namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.start()
	w.pass()
	w.marks("s", "")
	err = w.Admin.CoreV1().Pods(w.Namespace).Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil {
		t.Fatal(err)
	}
	w.passUntil("s", w.today())
}

func TestAcceptance05_TheEnvironmentOfAnInitContainerCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "s", "unused")
	w.secret("s")
	w.secret("unused")
	w.pod("p", corev1.PodSpec{InitContainers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{
		SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}},
	}}}}})
	w.start()
	w.pass()
	w.marks("s", "", "unused", w.today())
}

func TestAcceptance06_TheLastUseDecides(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "today", "old", "bad", "bad-old")
	w.secret("today", lastUsed, w.today())
	w.secret("old", lastUsed, "2020-01-01")
	w.secret("bad", lastUsed, "bad")
	w.secret("bad-old", lastUsed, "bad", invalidSince, longAgo)
	w.start()
	w.pass()
	w.marks("today", "", "old", w.today(), "bad", "", "bad-old", longAgo)
}

func TestAcceptance07_AMarkThatIsNoDateIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "s")
	w.secret("s", invalidSince, "bad")
	w.start()
	w.marks("s", w.today())
}

// It is not parallel: what tells of tracking is the cluster's.
func TestAcceptance08_NothingIsDoneWhileUsesAreNotTracked(t *testing.T) {
	w := newWorld(t)
	defer w.trackSince("2020-01-01")
	w.account("a", "s", "marked")
	w.secret("s")
	w.secret("marked", invalidSince, longAgo)
	w.stopTracking()
	w.start()
	w.pass()
	w.marks("s", "", "marked", longAgo)
	for _, r := range w.Proxy.Requests(isTracking) {
		if r.Code != http.StatusNotFound {
			t.Errorf("the API server's answer: %+v", r)
		}
	}
	if status := w.controller.Work(); status.LastError != "" {
		t.Errorf("last error: %s", status.LastError)
	}
	w.trackSince("2020-01-01")
	w.passUntil("s", w.today())
	w.passUntil("marked", "")
}

// A 404 that is not the API server's says nothing. It is asked again soon, not
// at the next pass, which is a day away.
func TestAPassIsRepeatedWhenAProxyFindsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "s")
	w.secret("s")
	stop := w.Proxy.Answer(isTracking, http.StatusNotFound, 0)
	w.controller = w.Start(legacytokencleaner.Descriptor(), section(24*time.Hour, period))
	harness.Eventually(t, soon, "error", func(context.Context) error {
		if got := w.controller.Work().LastError; !strings.Contains(got, "get config map "+tracking) {
			return fmt.Errorf("last error %q", got)
		}
		return nil
	})
	w.marks("s", "")
	stop()
	w.clock.Step(time.Minute)
	harness.Eventually(t, soon, "mark", func(context.Context) error {
		w.clock.Step(time.Second) // the wait may have begun after the step
		if got := w.mark("s"); got != w.today() {
			return fmt.Errorf("it is marked %q", got)
		}
		return nil
	})
}

// It is not parallel: the date of tracking is the cluster's.
func TestAcceptance08_NothingIsDoneWhileUsesAreTrackedForAShortTime(t *testing.T) {
	w := newWorld(t)
	defer w.trackSince("2020-01-01")
	w.account("a", "s", "marked")
	w.secret("s")
	w.secret("marked", invalidSince, longAgo)
	w.trackSince(w.today())
	w.start()
	w.pass()
	w.marks("s", "", "marked", longAgo)

	// It has begun for good at midnight, which is longer ago than the period.
	w.trackSince(w.clock.Now().Add(-24 * time.Hour).UTC().Format(time.DateOnly))
	w.pass()
	w.marks("s", w.today())
}

func TestAcceptance09_ATokenOfAnotherAccountOfTheNameIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	account := w.account("a", "other", "same")
	other, same := tokenSecret("other"), tokenSecret("same")
	other.Annotations[corev1.ServiceAccountUIDKey] = "11111111-2222-3333-4444-555555555555"
	other.Labels[invalidSince] = longAgo
	same.Annotations[corev1.ServiceAccountUIDKey] = string(account.UID)
	w.create(other)
	w.create(same)
	w.start()
	w.pass()
	w.marks("other", longAgo, "same", w.today())
}

func TestAcceptance10_ASecretThatChangesBeforeItsDeletionSurvives(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.account("a", "s")
	w.secret("s", invalidSince, longAgo)
	remove := w.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb == "delete" && r.Name == "s" {
			w.label("s", lastUsed, w.today()) // as the API server does when it sees the token
		}
	})
	w.start()
	remove()
	w.marks("s", longAgo)
	if writes := w.writes("s"); len(writes) != 1 || writes[0].Code != http.StatusConflict {
		t.Errorf("writes: %+v", writes)
	}
	if status := w.controller.Work(); status.LastError != "" {
		t.Errorf("last error: %s", status.LastError)
	}
	w.pass()
	w.marks("s", longAgo) // it was used
}

func TestAcceptance11_APeriodOfNothingIsRefused(t *testing.T) {
	t.Parallel()
	file := "apiVersion: config.wheelhouse.dev/v1alpha1\nkind: ControllerManagerConfiguration\ncontrollers:\n" +
		"  legacy-serviceaccount-token-cleaner-controller:\n    cleanUpPeriod: 0s\n"
	_, errs := schema.NewScheme().DecodeFile("config.yaml", []byte(file))
	if len(errs) != 1 || !strings.Contains(errs.Error(), "legacy-serviceaccount-token-cleaner-controller.cleanUpPeriod") {
		t.Errorf("errors: %v", errs)
	}
}
