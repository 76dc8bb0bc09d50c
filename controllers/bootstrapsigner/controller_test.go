package bootstrapsigner_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cluster-bootstrap/token/jws"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/bootstrapsigner"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// There is one ConfigMap for all, so that the tests of this package run one
// after the other.
func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

const (
	// soon is ample on a busy machine.
	soon = 2 * time.Minute
	// aWhile is how long something must not happen.
	aWhile = 300 * time.Millisecond
	prefix = "jws-kubeconfig-"
	// confidential is a part of all keys of tokens, which nobody may see.
	confidential = "0123456789"
)

var configMaps = v1.SchemeGroupVersion.WithResource("configmaps")

// world is a controller whose clock the test sets forward.
type world struct {
	*harness.Engine
	t          *testing.T
	clock      *clocktesting.FakeClock
	controller *harness.Instance
}

func start(t *testing.T) *world {
	t.Helper()
	var log harness.Log
	w := &world{t: t, clock: harness.NewClock(t, time.Now().Truncate(time.Second))}
	w.Engine = harness.New(t, controlplane.Shared(t), harness.Options{Clock: w.clock, Log: io.MultiWriter(t.Output(), &log)})
	t.Cleanup(func() {
		if strings.Contains(log.String(), confidential) {
			t.Error("the secret of a token is in the log")
		}
		ctx := context.Background()
		if err := w.Admin.CoreV1().Secrets(metav1.NamespaceSystem).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		err := w.Admin.CoreV1().ConfigMaps(metav1.NamespacePublic).Delete(ctx, "cluster-info", metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	w.controller = w.Start(bootstrapsigner.Descriptor(), nil)
	return w
}

// publish creates cluster-info with data.
func (w *world) publish(data map[string]string, changes ...func(*v1.ConfigMap)) {
	w.t.Helper()
	info := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"}, Data: data}
	for _, change := range changes {
		change(info)
	}
	if _, err := w.Admin.CoreV1().ConfigMaps(metav1.NamespacePublic).Create(w.t.Context(), info, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// set an entry of cluster-info.
func (w *world) set(key, value string) {
	w.t.Helper()
	body := fmt.Sprintf(`{"data":{%q:%q}}`, key, value)
	_, err := w.Admin.CoreV1().ConfigMaps(metav1.NamespacePublic).Patch(w.t.Context(), "cluster-info",
		types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) info() *v1.ConfigMap {
	w.t.Helper()
	info, err := w.Admin.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(w.t.Context(), "cluster-info", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

// keyOf a token.
func keyOf(id string) string { return confidential + id }

// token creates a token that may sign, with some entries of its own.
func (w *world) token(id string, entries map[string]string, changes ...func(*v1.Secret)) {
	w.t.Helper()
	token := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id},
		Type:       "bootstrap.kubernetes.io/token",
		StringData: map[string]string{"token-id": id, "token-secret": keyOf(id), "usage-bootstrap-signing": "true"},
	}
	maps.Copy(token.StringData, entries)
	for _, change := range changes {
		change(token)
	}
	if _, err := w.Admin.CoreV1().Secrets(token.Namespace).Create(w.t.Context(), token, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) deleteToken(id string) {
	w.t.Helper()
	err := w.Admin.CoreV1().Secrets(metav1.NamespaceSystem).Delete(w.t.Context(), "bootstrap-token-"+id, metav1.DeleteOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) change(id, entry, value string) {
	w.t.Helper()
	body := fmt.Sprintf(`{"stringData":{%q:%q}}`, entry, value)
	_, err := w.Admin.CoreV1().Secrets(metav1.NamespaceSystem).Patch(w.t.Context(), "bootstrap-token-"+id,
		types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// check that cluster-info has valid signatures of these tokens, and no others.
func check(info *v1.ConfigMap, ids ...string) error {
	var got []string
	for key, signature := range info.Data {
		id, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		got = append(got, id)
		if slices.Contains(ids, id) && !jws.DetachedTokenIsValid(signature, info.Data["kubeconfig"], id, keyOf(id)) {
			return fmt.Errorf("the signature of %s is not valid", id)
		}
	}
	slices.Sort(got)
	if want := slices.Sorted(slices.Values(ids)); !slices.Equal(got, want) {
		return fmt.Errorf("signed by %q, want %q", got, want)
	}
	return nil
}

// signed waits until cluster-info is signed by these tokens, and no others.
func (w *world) signed(ids ...string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "signatures", func(context.Context) error { return check(w.info(), ids...) })
}

// seen returns when the controller has looked at everything there is.
func (w *world) seen() {
	w.t.Helper()
	w.controller.CatchUp()
	var quiet time.Time
	harness.Eventually(w.t, soon, "quiet", func(context.Context) error {
		if status := w.controller.Work(); status.Busy > 0 || status.Depth > 0 || quiet.IsZero() {
			quiet = time.Now()
		}
		if time.Since(quiet) < 100*time.Millisecond {
			return errors.New("something was going on just now")
		}
		return nil
	})
}

// untouched fails the test when cluster-info is written within a while after all has been seen.
func (w *world) untouched() {
	w.t.Helper()
	w.seen()
	before := w.info()
	harness.Throughout(w.t, aWhile, "peace", func(context.Context) error {
		if now := w.info(); now.ResourceVersion != before.ResourceVersion {
			return fmt.Errorf("cluster-info was %v and is %v", before.Data, now.Data)
		}
		return nil
	})
}

// updates that the controller asked for, by their answer.
func (w *world) updates(code int) int {
	return len(w.Proxy.Requests(func(r apiproxy.Request) bool {
		return r.Write() && r.Resource == configMaps.GroupResource() && r.Code == code
	}))
}

func TestAcceptance01_ATokenSigns(t *testing.T) {
	w := start(t)
	w.publish(map[string]string{"kubeconfig": "x", "other": "y"})
	w.token("abcdef", nil)
	w.signed("abcdef")
	w.untouched()
	if got := w.updates(http.StatusOK); got != 1 {
		t.Errorf("%d updates, want 1", got)
	}
	if data := w.info().Data; data["kubeconfig"] != "x" || data["other"] != "y" || len(data) != 3 {
		t.Errorf("data %v", data)
	}
}

func TestAcceptance02_AnotherTextAndAnotherToken(t *testing.T) {
	w := start(t)
	w.publish(map[string]string{"kubeconfig": "x"})
	w.token("abcdef", nil)
	w.signed("abcdef")
	before := w.info().Data[prefix+"abcdef"]
	w.set("kubeconfig", " x\n\n")
	w.signed("abcdef")
	if w.info().Data[prefix+"abcdef"] == before {
		t.Error("the signature has not changed with the text")
	}
	w.token("ghijkl", nil)
	w.signed("abcdef", "ghijkl")
}

func TestAcceptance03_ATokenThatMayNotSignAnyMore(t *testing.T) {
	w := start(t)
	w.publish(map[string]string{"kubeconfig": "x", "other": "y"})
	w.token("abcdef", nil)
	w.token("ghijkl", nil)
	w.token("mnopqr", nil)
	w.signed("abcdef", "ghijkl", "mnopqr")
	w.deleteToken("abcdef")
	w.signed("ghijkl", "mnopqr")
	w.change("ghijkl", "usage-bootstrap-signing", "false")
	w.signed("mnopqr")
	if data := w.info().Data; data["kubeconfig"] != "x" || data["other"] != "y" {
		t.Errorf("data %v", data)
	}
}

func TestAcceptance04_AStraySignatureGoes(t *testing.T) {
	w := start(t)
	w.publish(map[string]string{"kubeconfig": "x"})
	w.token("abcdef", nil)
	w.signed("abcdef")
	w.set(prefix+"zzzzzz", "a..b")
	w.signed("abcdef")
	w.set(prefix+"abcdef", "forged")
	w.signed("abcdef")
}

func TestAcceptance05_TokensThatMayNotSign(t *testing.T) {
	w := start(t)
	w.token("past00", map[string]string{"expiration": w.clock.Now().Add(-time.Hour).Format(time.RFC3339)})
	w.token("noexp0", map[string]string{"expiration": "garbage"})
	w.token("abcdeg", map[string]string{"token-id": "abcdef"})
	w.token("usage0", map[string]string{"usage-bootstrap-signing": "True"})
	w.token("nokey0", map[string]string{"token-secret": ""})
	w.token("other0", nil, func(s *v1.Secret) { s.Namespace = metav1.NamespaceDefault })
	t.Cleanup(func() {
		err := w.Admin.CoreV1().Secrets(metav1.NamespaceDefault).Delete(context.Background(), "bootstrap-token-other0", metav1.DeleteOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	w.token("opaque", nil, func(s *v1.Secret) { s.Type = v1.SecretTypeOpaque })
	w.publish(map[string]string{"kubeconfig": "x"})
	w.token("abcdef", nil)
	w.signed("abcdef")
	w.untouched()
	w.signed("abcdef")
}

func TestAcceptance06_NothingToSign(t *testing.T) {
	w := start(t)
	w.token("abcdef", nil)
	w.seen()
	w.publish(map[string]string{"other": "y", prefix + "zzzzzz": "kept"})
	w.untouched()
	if writes := w.Writes(configMaps.GroupResource()); len(writes) > 0 {
		t.Errorf("written without a text to sign: %+v", writes)
	}
	if status := w.controller.Work(); status.LastError != "" {
		t.Errorf("error %s", status.LastError)
	}
	w.set("kubeconfig", "x")
	w.signed("abcdef")
}

func TestAcceptance07_ARestartChangesNothing(t *testing.T) {
	w := start(t)
	w.publish(map[string]string{"kubeconfig": "x"})
	w.token("abcdef", nil)
	w.token("ghijkl", nil)
	w.signed("abcdef", "ghijkl")
	before := w.info().ResourceVersion
	w.controller.Restart()
	w.untouched()
	if now := w.info().ResourceVersion; now != before {
		t.Errorf("the version was %s and is %s", before, now)
	}
	w.controller.Stop()
	w.deleteToken("abcdef")
	w.controller.Start()
	w.signed("ghijkl")
}

func TestAcceptance08_OffByDefault(t *testing.T) {
	section, ok := schema.NewScheme().Default().Controllers.Sections[bootstrapsigner.Descriptor().Name()]
	if !ok || section.Base().Enabled {
		t.Errorf("the default section is %+v, want one that is not enabled", section)
	}
}

func TestAcceptance09_ARefusedUpdateIsRepeated(t *testing.T) {
	w := start(t)
	allow := w.Proxy.Answer(func(r apiproxy.Request) bool { return r.Verb == "update" }, http.StatusForbidden, 0)
	w.publish(map[string]string{"kubeconfig": "x"})
	w.token("abcdef", nil)
	harness.Eventually(t, soon, "refusal", func(context.Context) error {
		if w.updates(http.StatusForbidden) == 0 {
			return errors.New("no update was asked for")
		}
		return nil
	})
	allow()
	w.signed("abcdef")
}

func TestASignatureGoesWhenItsTokenExpires(t *testing.T) {
	w := start(t)
	w.publish(map[string]string{"kubeconfig": "x"})
	expiry := w.clock.Now().Add(time.Minute).Truncate(time.Second)
	w.token("abcdef", map[string]string{"expiration": expiry.Add(time.Hour).Format(time.RFC3339)})
	w.token("ghijkl", map[string]string{"expiration": expiry.Format(time.RFC3339)})
	w.token("mnopqr", nil)
	w.signed("abcdef", "ghijkl", "mnopqr")
	w.seen()
	w.clock.SetTime(expiry)
	w.signed("abcdef", "mnopqr")
	w.seen()
	w.clock.SetTime(expiry.Add(time.Hour))
	w.signed("mnopqr")
}

func TestATokenThatGoesDuringAnOutage(t *testing.T) {
	w := start(t)
	w.publish(map[string]string{"kubeconfig": "x"})
	w.token("abcdef", nil)
	w.token("ghijkl", nil)
	w.signed("abcdef", "ghijkl")
	w.Proxy.Cut()
	w.deleteToken("abcdef")
	w.Proxy.Mend()
	w.signed("ghijkl")
}

func TestAnImmutableConfigMapIsLeftAlone(t *testing.T) {
	w := start(t)
	w.token("abcdef", nil)
	w.publish(map[string]string{"kubeconfig": "x"}, func(c *v1.ConfigMap) { immutable := true; c.Immutable = &immutable })
	w.untouched()
	if writes := w.Writes(configMaps.GroupResource()); len(writes) > 0 {
		t.Errorf("updates that cannot succeed: %+v", writes)
	}
}

func TestReloadsAtAnyMomentKeepValidSignatures(t *testing.T) {
	w := start(t)
	w.publish(map[string]string{"kubeconfig": "x", "other": "y"})
	w.token("steady", nil)
	w.signed("steady")
	// The signature of the token that is always there never goes.
	var mu sync.Mutex
	var wrong []map[string]string
	complete := false
	only := metav1.ListOptions{FieldSelector: "metadata.name=cluster-info"}
	harness.Follow(t, w.Admin.CoreV1().ConfigMaps(metav1.NamespacePublic), only, func(_ watch.EventType, info *v1.ConfigMap) {
		mu.Lock()
		defer mu.Unlock()
		if info.Data[prefix+"steady"] == "" || info.Data["other"] != "y" {
			wrong = append(wrong, info.Data)
		}
		complete = complete || info.Data["last"] != ""
	})

	stop := w.controller.Disturb(uint64(time.Now().UnixNano()))
	var left []string
	for n := range 60 {
		id := fmt.Sprintf("token%c", 'a'+n%26)
		switch {
		case n < 20:
			w.token(id, nil)
			left = append(left, id)
		case n%3 == 0 && len(left) > 2:
			w.deleteToken(left[0])
			left = left[1:]
		case n%3 == 1:
			w.set("kubeconfig", fmt.Sprintf("x%d", n))
		default:
			w.set(prefix+id, "stray")
		}
	}
	left = append(left, "steady")
	w.signed(left...)
	stop()
	w.seen()
	before := w.info()
	w.controller.Restart()
	w.untouched()
	if err := check(w.info(), left...); err != nil {
		t.Error(err)
	}
	if after := w.info(); after.ResourceVersion != before.ResourceVersion {
		t.Errorf("a restart has changed %v to %v", before.Data, after.Data)
	}

	w.set("last", "yes")
	harness.Eventually(t, soon, "the last event", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if !complete {
			return errors.New("the watch has not brought it")
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	for _, data := range wrong {
		t.Errorf("data %v", data)
	}
}
