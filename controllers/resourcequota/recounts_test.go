package resourcequota_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// recounting are the scenarios that share one controller with recounts.
var recounting = map[string]func(w *world){
	"10_AFalseStatusIsCorrectedByTheRecount":   acceptance10,
	"11_AnotherScopeSelectorShowsAtTheRecount": acceptance11,
	"12_NothingIsWrittenThatDoesNotChange":     acceptance12,
	"ANameThatNobodyCountsStaysWithoutUse":     nameThatNobodyCounts,
}

// The controller recounts once a second, and sees the whole of a cluster of its
// own. It is reloaded at the end.
func TestAcceptanceWithRecounts(t *testing.T) { //nolint:tparallel // the reloads follow the others
	t.Parallel()
	cp := ownControlPlane(t, controlplane.Options{})
	w := inWorld(t, cp, harness.Options{WholeCluster: true, DiscoveryInterval: time.Second})
	w.start(time.Second)
	t.Run("together", func(t *testing.T) {
		for name, scenario := range recounting {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(w.another(t, cp))
			})
		}
	})
	t.Run("ReloadsNeverAllowMore", func(t *testing.T) {
		w.reloads(t, cp)
	})
}

func acceptance10(w *world) {
	w.pod("a")
	w.quota("q", amounts{"pods": "5"})
	w.used("q", amounts{"pods": "1"})
	w.falsify("q", amounts{"pods": "0"})
	w.used("q", amounts{"pods": "1"})
	// What could be an object under way is not given back at once.
	w.falsify("q", amounts{"pods": "4"})
	w.used("q", amounts{"pods": "1"})
}

func acceptance11(w *world) {
	w.pod("a")
	w.quota("q", amounts{"pods": "5"}, selecting(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpExists))
	w.used("q", amounts{"pods": "0"})
	w.change("q", func(q *corev1.ResourceQuota) {
		q.Spec.ScopeSelector.MatchExpressions[0].Operator = corev1.ScopeSelectorOpDoesNotExist
	})
	w.used("q", amounts{"pods": "1"})
}

func acceptance12(w *world) {
	w.quota("q", amounts{"pods": "5"})
	w.configMap("m")
	w.pod("p")
	w.used("q", amounts{"pods": "1"})
	version := w.get("q").ResourceVersion
	w.deleteConfigMap("m")
	// Two recounts and more.
	harness.Throughout(w.t, 3*time.Second, "version of the quota", func(ctx context.Context) error {
		q, err := w.client.CoreV1().ResourceQuotas(w.ns).Get(ctx, "q", metav1.GetOptions{})
		if err == nil && q.ResourceVersion != version {
			err = fmt.Errorf("version %s: %+v", q.ResourceVersion, q.Status)
		}
		return err
	})
}

func nameThatNobodyCounts(w *world) {
	w.create("q", amounts{"pods": "5", "count/nothings.example.com": "1"})
	w.used("q", amounts{"pods": "0"})
	version := w.get("q").ResourceVersion
	harness.Throughout(w.t, 3*time.Second, "version of the quota", func(ctx context.Context) error {
		q, err := w.client.CoreV1().ResourceQuotas(w.ns).Get(ctx, "q", metav1.GetOptions{})
		if err == nil && (q.ResourceVersion != version || len(q.Status.Used) != 1 || len(q.Status.Hard) != 2) {
			err = fmt.Errorf("version %s: %+v", q.ResourceVersion, q.Status)
		}
		return err
	})
}
