package serviceaccount

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

const within = 2 * time.Minute

// world is an engine that sees the namespaces of one test only.
type world struct {
	*harness.Engine
	t     *testing.T
	label string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	label := rand.String(10)
	engine := harness.New(t, controlplane.Shared(t), harness.Options{
		Scope: apiproxy.Scope{NamespaceSelector: "test=" + label},
	})
	return &world{Engine: engine, t: t, label: label}
}

func (w *world) namespace() string {
	w.t.Helper()
	namespace, err := w.Admin.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "accounts-", Labels: map[string]string{"test": w.label}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return namespace.Name
}

// account waits for the default account of a namespace, with another UID than not.
func (w *world) account(namespace string, not types.UID) *corev1.ServiceAccount {
	w.t.Helper()
	var account *corev1.ServiceAccount
	harness.Eventually(w.t, within, "default account in "+namespace, func(ctx context.Context) (err error) {
		account, err = w.Admin.CoreV1().ServiceAccounts(namespace).Get(ctx, accountName, metav1.GetOptions{})
		if err == nil && account.UID == not {
			return fmt.Errorf("it is still the old one, %s", not)
		}
		return err
	})
	return account
}

func (w *world) deleteAccount(namespace, name string) {
	w.t.Helper()
	if err := w.Admin.CoreV1().ServiceAccounts(namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// settled returns when the controller has handled all events that came before
// the call, of namespaces and of accounts, between which there is no order: a
// new namespace comes after the former, the end of its account after the latter.
func (w *world) settled() {
	w.t.Helper()
	namespace := w.namespace()
	first := w.account(namespace, "")
	w.deleteAccount(namespace, accountName)
	w.account(namespace, first.UID)
}

// attempts are the controller's writes in a namespace.
func (w *world) attempts(namespace string) (attempts []apiproxy.Request) {
	for _, r := range w.Writes(serviceAccounts.GroupResource()) {
		if r.Namespace == namespace {
			attempts = append(attempts, r)
		}
	}
	return attempts
}

func TestAcceptance01_ANewNamespaceGetsAnAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	account := w.account(w.namespace(), "")
	if len(account.Labels)+len(account.Annotations)+len(account.OwnerReferences)+len(account.Finalizers)+
		len(account.Secrets)+len(account.ImagePullSecrets) > 0 || account.AutomountServiceAccountToken != nil {
		t.Errorf("the account has more than a name: %+v", account)
	}
}

func TestAcceptance02_ADeletedAccountIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	namespace := w.namespace()
	first := w.account(namespace, "")
	w.deleteAccount(namespace, accountName)
	w.account(namespace, first.UID)
	if attempts := w.attempts(namespace); len(attempts) != 2 {
		t.Errorf("%d writes for two accounts: %+v", len(attempts), attempts)
	}
}

// One that a finalizer holds has the name still. There is nothing to be done
// before it is gone.
func TestAcceptance02_AnAccountThatIsHeldIsMadeAgainWhenItIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	namespace := w.namespace()
	first := w.account(namespace, "")
	patch := func(patch string) {
		t.Helper()
		_, err := w.Admin.CoreV1().ServiceAccounts(namespace).Patch(t.Context(), accountName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"metadata":{"finalizers":["example.com/hold"]}}`)
	w.deleteAccount(namespace, accountName)
	w.settled()
	// The namespace is looked at now, with the account in the cache as it is.
	_, err := w.Admin.CoreV1().Namespaces().Patch(t.Context(), namespace, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"example.com/changed":"true"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.settled()
	if attempts := w.attempts(namespace); len(attempts) != 1 {
		t.Errorf("%d writes for the first account: %+v", len(attempts), attempts)
	}
	patch(`{"metadata":{"finalizers":null}}`)
	w.account(namespace, first.UID)
}

func TestAcceptance03_OtherAccountsCauseNoWrite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	namespace := w.namespace()
	before := w.account(namespace, "")
	_, err := w.Admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.deleteAccount(namespace, "other")
	w.settled()
	if after := w.account(namespace, ""); after.ResourceVersion != before.ResourceVersion {
		t.Error("the default account was changed")
	}
	if attempts := w.attempts(namespace); len(attempts) != 1 {
		t.Errorf("%d writes for one account: %+v", len(attempts), attempts)
	}
}

func TestAcceptance04_WhatHappenedWhileStoppedIsMadeUpFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.Start(Descriptor(), nil)
	first := w.namespace()
	account := w.account(first, "")
	controller.Stop()
	second := w.namespace()
	w.deleteAccount(first, accountName)
	controller.Start()
	w.account(first, account.UID)
	w.account(second, "")
}

func TestAcceptance05_ATerminatingNamespaceGetsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	namespace := w.namespace()
	w.account(namespace, "")
	w.Terminate(namespace)
	w.settled() // or else it may hear of the account first, and try in vain
	w.deleteAccount(namespace, accountName)
	w.settled()
	if attempts := w.attempts(namespace); len(attempts) != 1 {
		t.Errorf("writes in a terminating namespace: %+v", attempts)
	}
}

func TestAcceptance05_ARefusalInATerminatingNamespaceIsNotRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.Start(Descriptor(), nil)
	namespace := w.namespace()
	w.account(namespace, "")

	// The cache takes the namespace for active.
	release := w.Proxy.HoldWatches(namespaces.GroupResource())
	w.Terminate(namespace)
	w.deleteAccount(namespace, accountName)
	harness.Eventually(t, within, "attempt", func(context.Context) error {
		if attempts := w.attempts(namespace); len(attempts) < 2 {
			return fmt.Errorf("%d writes", len(attempts))
		}
		return nil
	})
	// A retry would follow within 5 ms.
	harness.Throughout(t, 300*time.Millisecond, "a single attempt", func(context.Context) error {
		if attempts := w.attempts(namespace); len(attempts) != 2 || attempts[1].Code != http.StatusForbidden {
			return fmt.Errorf("attempts: %+v", attempts)
		}
		return nil
	})
	release()
	w.settled()
	if status := controller.Work(); status.LastError != "" {
		t.Errorf("a refusal counts as an error: %s", status.LastError)
	}
	if attempts := w.attempts(namespace); len(attempts) != 2 {
		t.Errorf("attempts: %+v", attempts)
	}
}

func TestAcceptance06_ABurstOfNamespaces(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			section := &schema.ServiceAccountController{ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: workers}}
			controller := w.Start(Descriptor(), section)
			const count = 200
			for range count {
				w.namespace()
			}
			w.complete(count)
			if status := controller.Work(); status.LastError != "" {
				t.Errorf("last error of the queue: %s", status.LastError)
			}
			if writes := w.Writes(serviceAccounts.GroupResource()); len(w.inTest(writes)) != count {
				t.Errorf("%d writes for %d accounts", len(writes), count)
			}
		})
	}
}

// inTest leaves out what the engine itself writes in kube-system.
func (w *world) inTest(writes []apiproxy.Request) (mine []apiproxy.Request) {
	for _, r := range writes {
		if r.Namespace != metav1.NamespaceSystem {
			mine = append(mine, r)
		}
	}
	return mine
}

// complete waits until each of count namespaces has its account.
func (w *world) complete(count int) {
	w.t.Helper()
	harness.Eventually(w.t, 2*within, "account in every namespace", func(ctx context.Context) error {
		namespaces, err := w.Admin.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: "test=" + w.label})
		if err != nil {
			return err
		}
		if len(namespaces.Items) != count {
			return fmt.Errorf("%d namespaces, want %d", len(namespaces.Items), count)
		}
		accounts, err := w.Admin.CoreV1().ServiceAccounts("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + accountName})
		if err != nil {
			return err
		}
		have := map[string]bool{}
		for i := range accounts.Items {
			have[accounts.Items[i].Namespace] = true
		}
		var missing []string
		for i := range namespaces.Items {
			if name := namespaces.Items[i].Name; !have[name] {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("none in %s", strings.Join(missing, ", "))
		}
		return nil
	})
}

func TestReloadsAtAnyMomentChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.Start(Descriptor(), nil)
	stop := controller.Disturb(uint64(time.Now().UnixNano()))
	const count = 60
	deleted := map[string]types.UID{}
	for i := range count {
		namespace := w.namespace()
		if i%3 == 0 {
			account := w.account(namespace, "")
			w.deleteAccount(namespace, accountName)
			deleted[namespace] = account.UID
		}
	}
	w.complete(count)
	stop()
	w.complete(count)
	for namespace, uid := range deleted {
		w.account(namespace, uid)
	}
	made := 0
	for _, r := range w.inTest(w.Writes(serviceAccounts.GroupResource())) {
		if r.Verb != "create" {
			t.Errorf("unexpected write: %+v", r)
		}
		if r.Code == http.StatusCreated {
			made++
		}
	}
	if want := count + count/3; made > want {
		t.Errorf("%d accounts were made, want at most %d", made, want)
	}
}

func TestAnUnansweredCreateIsNotRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.Start(Descriptor(), nil)

	// The account is there, the controller does not know it, and neither does its cache.
	release := w.Proxy.HoldWatches(serviceAccounts.GroupResource())
	answered, aborted := make(chan struct{}), make(chan struct{})
	remove := w.Proxy.After(func(r apiproxy.Request) {
		if r.Verb == "create" && r.Resource == serviceAccounts.GroupResource() && r.Namespace != metav1.NamespaceSystem {
			close(answered)
			<-aborted
		}
	})
	namespace := w.namespace()
	<-answered
	controller.Abort()
	remove()
	close(aborted)
	account := w.account(namespace, "")

	started := make(chan struct{})
	go func() {
		defer close(started)
		controller.Start()
	}()
	release()
	<-started
	w.settled()
	if now := w.account(namespace, ""); now.UID != account.UID {
		t.Error("the account was replaced")
	}
	if attempts := w.attempts(namespace); len(attempts) != 1 {
		t.Errorf("attempts: %+v", attempts)
	}
}

// Somebody else makes the account in the same moment.
func TestAnAccountThatIsThereAlreadyIsNoError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var first sync.Once
	w.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb == "create" && r.Resource == serviceAccounts.GroupResource() && r.Namespace != metav1.NamespaceSystem {
			first.Do(func() {
				_, err := w.Admin.CoreV1().ServiceAccounts(r.Namespace).Create(t.Context(),
					&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: accountName}}, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
				}
			})
		}
	})
	controller := w.Start(Descriptor(), nil)
	namespace := w.namespace()
	account := w.account(namespace, "")
	w.settled()
	if attempts := w.attempts(namespace); len(attempts) != 1 || attempts[0].Code != http.StatusConflict {
		t.Errorf("attempts: %+v", attempts)
	}
	if now := w.account(namespace, ""); now.UID != account.UID {
		t.Error("the account was replaced")
	}
	if status := controller.Work(); status.LastError != "" {
		t.Errorf("an account that exists counts as an error: %s", status.LastError)
	}
}
