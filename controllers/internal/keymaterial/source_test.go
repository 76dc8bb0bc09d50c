package keymaterial

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

const within = 2 * time.Minute

// world is that of a controller, without a cluster.
type world struct {
	env   controller.Env
	clock *clocktesting.FakeClock
	log   *harness.Log
	// registry of env.Metrics.
	registry *prometheus.Registry

	mu      sync.Mutex
	bundle  []byte
	changed chan struct{}
}

func newWorld() *world {
	w := &world{
		clock:    clocktesting.NewFakeClock(time.Now()),
		log:      &harness.Log{},
		registry: prometheus.NewPedanticRegistry(),
		changed:  make(chan struct{}),
	}
	w.env = controller.Env{
		Name:    "test-controller",
		Logger:  slog.New(slog.NewTextHandler(w.log, nil)),
		Clock:   w.clock,
		Metrics: w.registry,
		ServerCA: func() ([]byte, <-chan struct{}) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.bundle, w.changed
		},
	}
	return w
}

func (w *world) setServerCA(bundle []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bundle = bundle
	close(w.changed)
	w.changed = make(chan struct{})
}

// run runs a source until the test ends, or stop is called.
func run[T any](t *testing.T, s *Source[T]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, runner := range s.Runners() {
		running.Go(func() {
			if err := runner(ctx); err != nil {
				t.Errorf("a runner ended: %v", err)
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	harness.Eventually(t, within, "start of the runners", func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.phase != following {
			return errors.New("files are not followed yet")
		}
		return nil
	})
	return stop
}

func eventuallyRejected(t *testing.T, status func() Status, parts ...string) {
	t.Helper()
	harness.Eventually(t, within, "rejection", func(context.Context) error {
		rejected := status().Rejected
		if rejected == nil {
			return errors.New("nothing is rejected")
		}
		for _, part := range parts {
			if !strings.Contains(rejected.Error, part) {
				return fmt.Errorf("rejected because of %q, which does not say %q", rejected.Error, part)
			}
		}
		return nil
	})
}

func eventuallyCurrent[T any](t *testing.T, s *Source[T], what string, is func(T) bool) {
	t.Helper()
	harness.Eventually(t, within, what, func(context.Context) error {
		if !is(s.Current()) {
			return errors.New("another value is in use")
		}
		return nil
	})
}

// toldOf waits until as many changes are told of, which are so just after they
// are in use, and fails the test if there are more.
func toldOf(t *testing.T, changes *atomic.Int32, want int32) {
	t.Helper()
	harness.Eventually(t, within, "news of a change", func(context.Context) error {
		if got := changes.Load(); got < want {
			return fmt.Errorf("%d are told of", got)
		}
		return nil
	})
	if got := changes.Load(); got != want {
		t.Errorf("%d changes are told of, want %d", got, want)
	}
}

func isPair(a *certificates.Authority) func(*SigningPair) bool {
	return func(p *SigningPair) bool { return p.Certificate.Equal(a.Certificate) }
}

func newPair(t *testing.T, w *world, m *certificates.Mount, onChange func()) *Source[*SigningPair] {
	t.Helper()
	s, err := NewSigningPair(w.env, "kubelet-serving", m.Path("tls.crt"), m.Path("tls.key"), onChange)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAPairIsFollowedThroughTheSwapsOfAMount(t *testing.T) {
	first, second := certificates.New(t, "first", nil), certificates.New(t, "second", nil)
	mount := certificates.NewMount(t, first.Pair())
	w := newWorld()
	var changes atomic.Int32
	s := newPair(t, w, mount, func() { changes.Add(1) })
	run(t, s)
	if !isPair(first)(s.Current()) {
		t.Fatal("the first pair is not in use")
	}
	mount.Write(t, second.Pair())
	eventuallyCurrent(t, s, "second pair", isPair(second))
	toldOf(t, &changes, 1)
	if rejected := s.Status().Rejected; rejected != nil {
		t.Errorf("rejected: %s", rejected.Error)
	}
}

func TestABadPairIsRejectedAndTheOldOneKept(t *testing.T) {
	good := certificates.New(t, "good", nil)
	other := certificates.New(t, "other", nil)
	now := time.Now()
	altered := func(change func(*x509.Certificate)) map[string][]byte {
		return certificates.New(t, "altered", change).Pair()
	}
	files := func(cert, key []byte) map[string][]byte { return map[string][]byte{"tls.crt": cert, "tls.key": key} }
	tests := map[string]struct {
		files map[string][]byte
		want  []string
	}{
		"another key":          {files(good.CertPEM, other.KeyPEM), []string{"does not match"}},
		"no key":               {files(good.CertPEM, nil), []string{"key", "no private key"}},
		"a broken key":         {files(good.CertPEM, other.KeyPEM[:60]), []string{"no private key"}},
		"no certificate":       {files(nil, good.KeyPEM), []string{"certificate"}},
		"a broken certificate": {files(other.CertPEM[:100], other.KeyPEM), []string{"certificate"}},
		"two certificates":     {files(append(bytes.Clone(other.CertPEM), good.CertPEM...), other.KeyPEM), []string{"2 certificates"}},
		"no CA":                {altered(func(c *x509.Certificate) { c.IsCA = false }), []string{"not a CA"}},
		"no basic constraints": {altered(func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = false, false }), []string{"not a CA"}},
		"no signing of certificates": {altered(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }),
			[]string{"keyCertSign"}},
		"expired":        {altered(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }), []string{"expired"}},
		"not valid yet":  {altered(func(c *x509.Certificate) { c.NotBefore = now.Add(time.Hour) }), []string{"not valid before"}},
		"a missing file": {map[string][]byte{"tls.crt": good.CertPEM}, []string{"no such file"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			mount := certificates.NewMount(t, good.Pair())
			w := newWorld()
			s := newPair(t, w, mount, func() { t.Error("a change is told of") })
			run(t, s)
			mount.Write(t, test.files)
			eventuallyRejected(t, s.Status, test.want...)
			eventuallyRejected(t, s.Status, mount.Path("tls.crt"), mount.Path("tls.key"), "kubelet-serving", "give the CA's certificate")
			if !isPair(good)(s.Current()) {
				t.Error("the good pair is not in use any more")
			}
			if got := rejectedMetric(t, s); got != 1 {
				t.Errorf("metric is %v, want 1", got)
			}
			// Back to the old content is no change, and no rejection either.
			mount.Write(t, good.Pair())
			harness.Eventually(t, within, "end of the rejection", func(context.Context) error {
				if rejected := s.Status().Rejected; rejected != nil {
					return errors.New(rejected.Error)
				}
				return nil
			})
			if got := rejectedMetric(t, s); got != 0 {
				t.Errorf("metric is %v, want 0", got)
			}
			assertNoSecret(t, w, s, good.KeyPEM, other.KeyPEM)
		})
	}
}

func rejectedMetric[T any](t *testing.T, s *Source[T]) float64 {
	t.Helper()
	var metric dto.Metric
	if err := s.metrics.rejected.With(s.metrics.labels).Write(&metric); err != nil {
		t.Fatal(err)
	}
	return metric.GetGauge().GetValue()
}

// assertNoSecret looks for keys in the log and in the summary.
func assertNoSecret(t *testing.T, w *world, s *Source[*SigningPair], keys ...[]byte) {
	t.Helper()
	summary, err := json.Marshal(Report{s}.Summary())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		for line := range strings.Lines(string(key)) {
			line = strings.TrimSpace(line)
			if len(line) > 16 && !strings.HasPrefix(line, "-----") && strings.Contains(w.log.String()+string(summary), line) {
				t.Errorf("a key is given away: %s", line)
			}
		}
	}
}

func TestAPairThatWasReplacedFileByFileIsUsedInTheEnd(t *testing.T) {
	first, second := certificates.New(t, "first", nil), certificates.New(t, "second", nil)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	write := func(path string, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(cert, first.CertPEM)
	write(key, first.KeyPEM)
	w := newWorld()
	s, err := NewSigningPair(w.env, "pair", cert, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	write(cert, second.CertPEM)
	eventuallyRejected(t, s.Status, "does not match")
	if !isPair(first)(s.Current()) {
		t.Error("the first pair is not in use any more")
	}
	write(key, second.KeyPEM)
	eventuallyCurrent(t, s, "second pair", isPair(second))
}

func TestWhatBecomesValidIsUsedThen(t *testing.T) {
	old := certificates.New(t, "old", nil)
	mount := certificates.NewMount(t, old.Pair())
	w := newWorld()
	later := certificates.New(t, "later", func(c *x509.Certificate) { c.NotBefore = w.clock.Now().Add(time.Hour) })
	var changes atomic.Int32
	s := newPair(t, w, mount, func() { changes.Add(1) })
	run(t, s)
	mount.Write(t, later.Pair())
	eventuallyRejected(t, s.Status, "not valid before")
	harness.Eventually(t, within, "use of the pair once it is valid", func(context.Context) error {
		if w.clock.HasWaiters() {
			w.clock.Step(10 * time.Minute)
		}
		if !isPair(later)(s.Current()) {
			return errors.New("the old one is in use")
		}
		return nil
	})
	if w.clock.Now().Before(later.Certificate.NotBefore) {
		t.Error("it was used too soon")
	}
	toldOf(t, &changes, 1)
	if status := s.Status(); status.Rejected != nil {
		t.Errorf("status %+v", status)
	}
}

func TestWhatHasExpiredIsBetterThanNothingAndGivesWay(t *testing.T) {
	w := newWorld()
	expired := certificates.New(t, "expired", func(c *x509.Certificate) { c.NotAfter = w.clock.Now().Add(-time.Second) })
	mount := certificates.NewMount(t, expired.Pair())
	s := newPair(t, w, mount, nil)
	run(t, s)
	if !isPair(expired)(s.Current()) {
		t.Fatal("there is nothing in use")
	}
	if problem := s.Status().Problem; !strings.Contains(problem, "expired") || !strings.Contains(problem, mount.Path("tls.crt")) {
		t.Errorf("problem %q does not say what has expired", problem)
	}
	if !strings.Contains(w.log.String(), "expired") {
		t.Error("the log does not tell of it")
	}
	good := certificates.New(t, "good", nil)
	mount.Write(t, good.Pair())
	eventuallyCurrent(t, s, "good pair", isPair(good))
	if problem := s.Status().Problem; problem != "" {
		t.Errorf("problem: %s", problem)
	}
}

func TestWhatExpiresInUseIsToldOf(t *testing.T) {
	w := newWorld()
	short := certificates.New(t, "short", func(c *x509.Certificate) { c.NotAfter = w.clock.Now().Add(5 * time.Minute) })
	s := newPair(t, w, certificates.NewMount(t, short.Pair()), nil)
	run(t, s)
	harness.Eventually(t, within, "line in the log", func(context.Context) error {
		if w.clock.HasWaiters() {
			w.clock.Step(time.Minute)
		}
		if !strings.Contains(w.log.String(), "expired") {
			return errors.New("nothing is said")
		}
		return nil
	})
}

func TestBeforeTheRunnersRunEveryUseReadsTheFiles(t *testing.T) {
	first, second := certificates.New(t, "first", nil), certificates.New(t, "second", nil)
	mount := certificates.NewMount(t, first.Pair())
	w := newWorld()
	var changes atomic.Int32
	s := newPair(t, w, mount, func() { changes.Add(1) })
	mount.Write(t, second.Pair())
	if !isPair(second)(s.Current()) {
		t.Error("a standby that takes over uses what it was made with")
	}
	mount.Write(t, map[string][]byte{"tls.crt": nil, "tls.key": nil})
	if !isPair(second)(s.Current()) {
		t.Error("what was used before is not used any more")
	}
	if families, err := w.registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("series of a controller that may never lead: %v, error %v", families, err)
	}
	stop := run(t, s)
	eventuallyRejected(t, s.Status, "certificate")
	stop()
	mount.Write(t, first.Pair())
	if !isPair(second)(s.Current()) {
		t.Error("a controller that ends reads files")
	}
	if changes.Load() != 1 {
		t.Errorf("%d changes are told of, want 1", changes.Load())
	}
	if families, err := w.registry.Gather(); err != nil || len(families) > 0 {
		t.Errorf("series of a controller that has ended: %v, error %v", families, err)
	}
}

func TestWithoutAnythingUsableThereIsNoSource(t *testing.T) {
	w := newWorld()
	dir := t.TempDir()
	if _, err := NewRootCA(w.env, filepath.Join(dir, "ca.crt"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one of a missing file", err)
	}
	ca := certificates.New(t, "ca", nil)
	two := certificates.NewMount(t, map[string][]byte{"tls.crt": append(bytes.Clone(ca.CertPEM), ca.CertPEM...), "tls.key": ca.KeyPEM})
	if _, err := NewSigningPair(w.env, "pair", two.Path("tls.crt"), two.Path("tls.key"), nil); err == nil ||
		!strings.Contains(err.Error(), "2 certificates") || !strings.Contains(err.Error(), two.Path("tls.crt")) {
		t.Errorf("error %v, want one of two certificates that names the file", err)
	}
	if _, err := NewRootCA(w.env, "", nil); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("error %v, want one of an empty bundle", err)
	}
}

func TestAKeyThatEverybodyCanReadIsWarnedOf(t *testing.T) {
	ca := certificates.New(t, "ca", nil)
	mount := certificates.NewMount(t, ca.Pair())
	if err := os.Chmod(mount.Path("tls.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	s := newPair(t, w, mount, nil)
	warnings := strings.Join(s.Status().Warnings, "\n")
	if !strings.Contains(warnings, mount.Path("tls.key")) || !strings.Contains(warnings, "chmod") {
		t.Errorf("warnings %q do not name the file and the remedy", warnings)
	}
	if strings.Contains(warnings, mount.Path("tls.crt")) {
		t.Errorf("a certificate is no secret: %s", warnings)
	}
	if !strings.Contains(w.log.String(), "can be read by every user") {
		t.Error("the log does not warn")
	}
}

func TestTheCAOfTheProcessIsFollowed(t *testing.T) {
	first, second := certificates.New(t, "first", nil), certificates.New(t, "second", nil)
	w := newWorld()
	w.setServerCA(first.CertPEM)
	s, err := NewRootCA(w.env, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	is := func(a *certificates.Authority) func(*Bundle) bool {
		return func(b *Bundle) bool { return b.PEM == string(a.CertPEM) }
	}
	if !is(first)(s.Current()) {
		t.Error("the first one is not in use")
	}
	w.setServerCA(second.CertPEM)
	eventuallyCurrent(t, s, "second CA", is(second))
	w.setServerCA(nil)
	eventuallyRejected(t, s.Status, "empty")
	if !is(second)(s.Current()) {
		t.Error("an empty bundle is in use")
	}
	stop()
}

// Whoever can do without a CA gets the first that there is, and keeps the last.
func TestACAOfTheProcessMayComeLater(t *testing.T) {
	first, second := certificates.New(t, "first", nil), certificates.New(t, "second", nil)
	w := newWorld()
	var changes atomic.Int32
	s, err := NewOptionalRootCA(w.env, "", func() { changes.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Current(); got.PEM != "" {
		t.Errorf("in use: %q", got.PEM)
	}
	if status := s.Status(); status.Rejected != nil || status.Problem != "" || len(status.Warnings) != 1 ||
		!strings.Contains(status.Warnings[0], "set rootCAFile") {
		t.Errorf("status %+v", status)
	}
	stop := run(t, s)
	w.setServerCA(nil)
	w.setServerCA([]byte("no certificate"))
	eventuallyRejected(t, s.Status, "no PEM file")
	if got := s.Current(); got.PEM != "" {
		t.Errorf("in use: %q", got.PEM)
	}
	for i, ca := range []*certificates.Authority{first, second} {
		w.setServerCA(ca.CertPEM)
		eventuallyCurrent(t, s, "CA", func(b *Bundle) bool { return b.PEM == string(ca.CertPEM) })
		toldOf(t, &changes, int32(i+1))
	}
	if status := s.Status(); status.Rejected != nil || len(status.Warnings) != 0 {
		t.Errorf("status %+v", status)
	}
	w.setServerCA(nil)
	eventuallyRejected(t, s.Status, "empty")
	if got := s.Current(); got.PEM != string(second.CertPEM) {
		t.Errorf("in use: %q", got.PEM)
	}
	stop()

	missing := filepath.Join(t.TempDir(), "ca.crt")
	if _, err := NewOptionalRootCA(w.env, missing, nil); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("error %v of a file that is not there", err)
	}
}

func TestBundles(t *testing.T) {
	now := time.Now()
	ca, other := certificates.New(t, "ca", nil), certificates.New(t, "other", nil)
	expired := certificates.New(t, "expired", func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) })
	leaf := certificates.New(t, "leaf", func(c *x509.Certificate) { c.IsCA = false })
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	tests := map[string]struct {
		data    []byte
		certs   int
		err     string
		warning string
	}{
		"one":                     {data: ca.CertPEM, certs: 1},
		"two with a comment":      {data: join([]byte("# a comment\n"), ca.CertPEM, []byte("\n# -----BEGIN\n"), other.CertPEM), certs: 2},
		"empty":                   {err: "empty"},
		"white space":             {data: []byte(" \n\t"), err: "empty"},
		"text":                    {data: []byte("hello"), err: "no PEM file"},
		"not UTF-8":               {data: join(ca.CertPEM, []byte{0xff, 0xfe}), err: "no text"},
		"a key":                   {data: join(ca.CertPEM, ca.KeyPEM), err: "private key"},
		"a broken key":            {data: join(ca.CertPEM, ca.KeyPEM[:40]), err: "private key"},
		"half of the second":      {data: join(ca.CertPEM, other.CertPEM[:100]), err: "1 of 2"},
		"no certificate in block": {data: []byte("-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"), err: "no PEM file"},
		"no CA":                   {data: leaf.CertPEM, certs: 1, warning: "not a CA"},
		"one has expired":         {data: join(ca.CertPEM, expired.CertPEM), certs: 2, warning: "expired"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bundle, warnings, err := parseBundle(test.data, now)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want one of %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(bundle.Certificates) != test.certs || bundle.PEM != string(test.data) {
				t.Errorf("%d certificates, want %d, of the text as it is", len(bundle.Certificates), test.certs)
			}
			if got := strings.Join(warnings, "\n"); (test.warning == "") != (got == "") || !strings.Contains(got, test.warning) {
				t.Errorf("warnings %q, want %q", got, test.warning)
			}
		})
	}
}

func TestPrivateKeys(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ecKey := certificates.NewKey(t)
	block := func(kind string, der []byte, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	pkcs8 := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return block("PRIVATE KEY", der, err)
	}
	sec1, err := x509.MarshalECPrivateKey(ecKey)
	tests := map[string]struct {
		data []byte
		want crypto.Signer
	}{
		"PKCS #1":              {block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey), nil), rsaKey},
		"PKCS #8 of RSA":       {pkcs8(rsaKey), rsaKey},
		"SEC 1":                {block("EC PRIVATE KEY", sec1, err), ecKey},
		"SEC 1 and parameters": {append(block("EC PARAMETERS", []byte{6}, nil), block("EC PRIVATE KEY", sec1, err)...), ecKey},
		"PKCS #8 of ECDSA":     {pkcs8(ecKey), ecKey},
		"PKCS #8 of Ed25519":   {pkcs8(edKey), edKey},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			key, err := ParsePrivateKey(test.data)
			if err != nil {
				t.Fatal(err)
			}
			public, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
			if !ok || !public.Equal(test.want.Public()) {
				t.Error("another key was read")
			}
		})
	}
	if _, err := ParsePrivateKey([]byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n")); err == nil ||
		!strings.Contains(err.Error(), "decrypt") {
		t.Errorf("error %v does not say that the key is encrypted", err)
	}
}

func TestTheReportIsServed(t *testing.T) {
	w := newWorld()
	s := newPair(t, w, certificates.NewMount(t, certificates.New(t, "ca", nil).Pair()), nil)
	get := func(path string) *httptest.ResponseRecorder {
		recorder := httptest.NewRecorder()
		Report{s}.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		return recorder
	}
	if code := get("/other").Code; code != http.StatusNotFound {
		t.Errorf("status %d of an unknown path", code)
	}
	var report struct{ KeyMaterial []Status }
	if err := json.Unmarshal(get("/keymaterial").Body.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.KeyMaterial) != 1 || len(report.KeyMaterial[0].Files) != 2 {
		t.Fatalf("report: %+v", report)
	}
	if files := report.KeyMaterial[0].Files; files[0].SHA256 == "" || files[1].SHA256 != "" {
		t.Errorf("the digest of the certificate alone should be shown: %+v", files)
	}
}

func FuzzParse(f *testing.F) {
	ca := certificates.New(f, "ca", nil)
	f.Add(ca.CertPEM, ca.KeyPEM)
	f.Add(append(bytes.Clone(ca.CertPEM), ca.KeyPEM...), []byte("-----BEGIN PRIVATE KEY-----"))
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		if pair, err := parsePair(cert, key); err == nil && (pair.Certificate == nil || pair.Key == nil) {
			t.Error("half a pair")
		}
		if bundle, _, err := parseBundle(cert, time.Now()); err == nil && (len(bundle.Certificates) == 0 || strings.TrimSpace(bundle.PEM) == "") {
			t.Error("an empty bundle")
		}
	})
}
