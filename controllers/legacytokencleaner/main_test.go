package legacytokencleaner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/legacytokencleaner"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

const (
	// soon is ample on a busy machine.
	soon = 2 * time.Minute
	// interval and period of the tests' controllers, which live two days ahead, at noon.
	interval = time.Minute
	period   = time.Hour

	lastUsed     = "kubernetes.io/legacy-token-last-used"
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
	longAgo      = "2020-01-02"
	tracking     = "kube-apiserver-legacy-service-account-token-tracking"
)

var (
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets").GroupResource()
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps").GroupResource()
)

// world is a namespace with a controller for which it is some days later.
type world struct {
	*harness.Engine
	t          *testing.T
	controller *harness.Instance
	clock      *clocktesting.FakeClock
}

func section(interval, period time.Duration) *schema.LegacyServiceAccountTokenCleanerController {
	return &schema.LegacyServiceAccountTokenCleanerController{
		ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 1},
		Interval:           metav1.Duration{Duration: interval},
		CleanUpPeriod:      metav1.Duration{Duration: period},
	}
}

// newWorld in which the controller does not run yet, so that its first pass
// sees what the test makes.
func newWorld(t *testing.T) *world {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Now().UTC().Truncate(24 * time.Hour).Add(60 * time.Hour))
	w := &world{Engine: harness.New(t, controlplane.Shared(t), harness.Options{Clock: clock}), t: t, clock: clock}
	w.trackSince("2020-01-01")
	return w
}

func (w *world) start() {
	w.t.Helper()
	w.controller = w.Start(legacytokencleaner.Descriptor(), section(interval, period))
	w.passed(1)
}

// today as the controller sees it.
func (w *world) today() string { return w.clock.Now().UTC().Format(time.DateOnly) }

// trackSince makes the API server say since when it tracks the use of tokens.
func (w *world) trackSince(date string) {
	w.t.Helper()
	maps := w.Admin.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	harness.Eventually(w.t, soon, "date of tracking", func(ctx context.Context) error {
		configMap, err := maps.Get(ctx, tracking, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			configMap = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: tracking}, Data: map[string]string{"since": date}}
			_, err = maps.Create(ctx, configMap, metav1.CreateOptions{})
			return err
		}
		if err != nil || configMap.Data["since"] == date {
			return err
		}
		configMap.Data = map[string]string{"since": date}
		_, err = maps.Update(ctx, configMap, metav1.UpdateOptions{})
		return err
	})
}

// stopTracking takes away what says since when uses are tracked. The API server
// makes it anew, but not without end.
func (w *world) stopTracking() {
	w.t.Helper()
	away := 0
	harness.Eventually(w.t, soon, "end of tracking", func(ctx context.Context) error {
		err := w.Admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(ctx, tracking, metav1.DeleteOptions{})
		if !apierrors.IsNotFound(err) {
			away = 0
			return fmt.Errorf("it was there; deletion: %w", err)
		}
		if away++; away < 10 {
			return errors.New("it may come back")
		}
		return nil
	})
}

func isTracking(r apiproxy.Request) bool {
	return r.Verb == "get" && r.Resource == configMaps && r.Name == tracking
}

// passes that have begun, each of which asks since when uses are tracked.
func (w *world) passes() int { return len(w.Proxy.Requests(isTracking)) }

// passed waits until as many passes are over. The clock goes on by a little,
// for keys that wait until the cache has seen what was written.
func (w *world) passed(passes int) {
	w.t.Helper()
	harness.Eventually(w.t, soon, fmt.Sprintf("%d passes", passes), func(context.Context) error {
		w.clock.Step(10 * time.Millisecond)
		if begun, status := w.passes(), w.controller.Work(); begun < passes || status.Depth+status.Busy > 0 {
			return fmt.Errorf("%d have begun, %+v", begun, status)
		}
		return nil
	})
}

// pass makes the controller look at everything again. A pass that is under way
// ends before: its wait for the next one counts from its end.
func (w *world) pass() {
	w.t.Helper()
	w.passed(0)
	before := w.passes()
	w.clock.Step(interval)
	w.passed(before + 1)
}

// account that lists Secrets as clusters before 1.24 did.
func (w *world) account(name string, listed ...string) *corev1.ServiceAccount {
	w.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, secret := range listed {
		account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: secret})
	}
	created, err := w.Admin.CoreV1().ServiceAccounts(w.Namespace).Create(w.t.Context(), account, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

// secret of account a, with pairs of labels.
func (w *world) secret(name string, labels ...string) {
	w.t.Helper()
	secret := tokenSecret(name)
	for i := 0; i < len(labels); i += 2 {
		secret.Labels[labels[i]] = labels[i+1]
	}
	w.create(secret)
}

func tokenSecret(name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "a"},
			Labels:      map[string]string{},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}
}

func (w *world) create(secret *corev1.Secret) {
	w.t.Helper()
	if _, err := w.Admin.CoreV1().Secrets(w.Namespace).Create(w.t.Context(), secret, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// label a Secret. It may be called by a hook of the proxy.
func (w *world) label(name, label, value string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, label, value)
	_, err := w.Admin.CoreV1().Secrets(w.Namespace).Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.t.Error(err)
	}
}

// mark of a Secret; empty when it has none.
func (w *world) mark(name string) string {
	w.t.Helper()
	secret, err := w.Admin.CoreV1().Secrets(w.Namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return secret.Labels[invalidSince]
}

// marks fails the test unless Secrets are marked as given, in pairs.
func (w *world) marks(pairs ...string) {
	w.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := w.mark(pairs[i]); got != pairs[i+1] {
			w.t.Errorf("%s is marked %q, want %q", pairs[i], got, pairs[i+1])
		}
	}
}

// passUntil makes passes until a Secret is marked, or gone when the mark is
// empty: the cache may learn of a change after a pass.
func (w *world) passUntil(name, mark string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, fmt.Sprintf("mark %q of %s", mark, name), func(ctx context.Context) error {
		secret, err := w.Admin.CoreV1().Secrets(w.Namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case mark == "" && apierrors.IsNotFound(err):
			return nil
		case err == nil && mark != "" && secret.Labels[invalidSince] == mark:
			return nil
		case err == nil:
			err = fmt.Errorf("it is there, marked %q", secret.Labels[invalidSince])
		}
		w.pass()
		return err
	})
}

// writes of a Secret.
func (w *world) writes(name string) (writes []apiproxy.Request) {
	for _, r := range w.Writes(secrets) {
		if r.Name == name {
			writes = append(writes, r)
		}
	}
	return writes
}

func (w *world) pod(name string, spec corev1.PodSpec) {
	w.t.Helper()
	for i := range spec.InitContainers {
		spec.InitContainers[i].Name, spec.InitContainers[i].Image = fmt.Sprintf("init-%d", i), "image"
	}
	spec.Containers = append(spec.Containers, corev1.Container{Name: "c", Image: "image"})
	_, err := w.Admin.CoreV1().Pods(w.Namespace).Create(w.t.Context(),
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}
