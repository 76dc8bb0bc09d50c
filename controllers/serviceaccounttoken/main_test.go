package serviceaccounttoken_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wheelhouse-project/wheelhouse/controllers/serviceaccounttoken"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const (
	// soon is how long the controller may take.
	soon = 2 * time.Minute
	// aWhile is how long what must not happen is watched for.
	aWhile = 500 * time.Millisecond
)

var (
	secrets  = corev1.SchemeGroupVersion.WithResource("secrets").GroupResource()
	accounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts").GroupResource()
)

// Signing keys of RSA and of P-256 that the API server knows beside its own.
var rsaKey, ecKey = makeKeys()

func makeKeys() (rsaPEM, ecPEM []byte) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	ecDER, err := x509.MarshalECPrivateKey(ecKey)
	if err != nil {
		panic(err)
	}
	rsaDER := x509.MarshalPKCS1PrivateKey(rsaKey)
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: rsaDER}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: ecDER})
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "serviceaccounttoken-")
	if err != nil {
		panic(err)
	}
	var args []string
	for name, key := range map[string][]byte{"rsa.key": rsaKey, "ec.key": ecKey} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, key, 0o600); err != nil {
			panic(err)
		}
		args = append(args, "--service-account-key-file="+path)
	}
	code := harness.Main(m, controlplane.Options{APIServerArgs: args})
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// world is a namespace with a controller.
type world struct {
	*harness.Engine
	t          *testing.T
	controller *harness.Instance
	section    *schema.ServiceAccountTokenController
	// keyFile and caFile are the controller's own copies.
	keyFile, caFile string
	log             *harness.Log
}

// newWorld in which the controller does not run yet.
func newWorld(t *testing.T) *world {
	t.Helper()
	cp, dir := controlplane.Shared(t), t.TempDir()
	w := &world{t: t, keyFile: filepath.Join(dir, "sa.key"), caFile: filepath.Join(dir, "ca.crt"), log: &harness.Log{}}
	w.write(w.keyFile, rsaKey)
	w.write(w.caFile, w.read(cp.PKI.CAFile))
	w.section = &schema.ServiceAccountTokenController{
		ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 5}, KeyFile: w.keyFile, RootCAFile: w.caFile,
	}
	w.Engine = harness.New(t, cp, harness.Options{Log: w.log})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
	return w
}

func started(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.start()
	return w
}

func (w *world) start() {
	w.t.Helper()
	w.controller = w.Start(serviceaccounttoken.Descriptor(), w.section)
}

func (w *world) read(path string) []byte {
	w.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

// write a file as careful writers do: nobody sees half of it.
func (w *world) write(path string, data []byte) {
	w.t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		w.t.Fatal(err)
	}
}

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

func (w *world) deleteAccount(name string) {
	w.t.Helper()
	if err := w.Admin.CoreV1().ServiceAccounts(w.Namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// tokenSecret of an account, changed by options.
func tokenSecret(name, account string, options ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	for _, o := range options {
		o(secret)
	}
	return secret
}

func data(key, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[key] = []byte(value)
	}
}

func accountUID(uid types.UID) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Annotations[corev1.ServiceAccountUIDKey] = string(uid) }
}

func (w *world) secret(name, account string, options ...func(*corev1.Secret)) *corev1.Secret {
	w.t.Helper()
	return w.create(tokenSecret(name, account, options...))
}

func (w *world) create(secret *corev1.Secret) *corev1.Secret {
	w.t.Helper()
	created, err := w.Admin.CoreV1().Secrets(w.Namespace).Create(w.t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

func (w *world) deleteSecret(name string) {
	w.t.Helper()
	if err := w.Admin.CoreV1().Secrets(w.Namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) patchSecret(name, patch string) {
	w.t.Helper()
	_, err := w.Admin.CoreV1().Secrets(w.Namespace).Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// eventually waits until check accepts a Secret, which it returns.
func (w *world) eventually(name, what string, check func(*corev1.Secret) error) *corev1.Secret {
	w.t.Helper()
	var secret *corev1.Secret
	harness.Eventually(w.t, soon, what+" of secret "+name, func(ctx context.Context) (err error) {
		if secret, err = w.Admin.CoreV1().Secrets(w.Namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(secret)
	})
	return secret
}

// filled waits until a Secret has everything, and the CA that the file holds.
func (w *world) filled(name string) *corev1.Secret {
	w.t.Helper()
	return w.filledWith(name, w.read(w.caFile))
}

func (w *world) filledWith(name string, ca []byte) *corev1.Secret {
	w.t.Helper()
	return w.eventually(name, "content", func(secret *corev1.Secret) error {
		switch {
		case len(secret.Data["token"]) == 0:
			return errors.New("it has no token")
		case len(secret.Data["namespace"]) == 0:
			return errors.New("it has no namespace")
		case !bytes.Equal(secret.Data["ca.crt"], ca):
			return errors.New("it has another CA")
		}
		return nil
	})
}

func (w *world) gone(name string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "end of secret "+name, func(ctx context.Context) error {
		_, err := w.Admin.CoreV1().Secrets(w.Namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// listed waits until an account refers to these Secrets alone.
func (w *world) listed(account string, names ...string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, fmt.Sprintf("references %v of %s", names, account), func(ctx context.Context) error {
		found, err := w.Admin.CoreV1().ServiceAccounts(w.Namespace).Get(ctx, account, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var have []string
		for _, reference := range found.Secrets {
			have = append(have, reference.Name)
		}
		if fmt.Sprint(have) != fmt.Sprint(names) {
			return fmt.Errorf("it refers to %v", have)
		}
		return nil
	})
}

// settled waits until the controller knows what there is, and all its keys are done.
func (w *world) settled() {
	w.t.Helper()
	w.controller.CatchUp()
	harness.Eventually(w.t, soon, "idle controller", func(context.Context) error {
		if status := w.controller.Work(); status.Depth+status.Busy > 0 {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
}

// writes of an object.
func (w *world) writes(verb, name string) (writes []apiproxy.Request) {
	for _, r := range append(w.Writes(secrets), w.Writes(accounts)...) {
		if r.Verb == verb && r.Name == name && r.Namespace == w.Namespace {
			writes = append(writes, r)
		}
	}
	return writes
}
