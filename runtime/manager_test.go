package runtime_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/wheelhouse-project/wheelhouse/runtime"
	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

// soon is ample for what must come on a busy machine, where a wait that has
// doubled a few times may be among it.
const soon = 4 * time.Minute

// section is that of the controllers in this test.
type section struct {
	schema.ControllerSettings `json:",inline"`
}

// descriptor describes a controller with a queue of one key, which reconcile
// gets whenever the controller starts, and every 20 ms from then on.
func descriptor(name string, reconcile work.Reconciler[string]) controller.Descriptor {
	return controller.Descriptor{
		Section: schema.SectionType{Name: name, New: func() schema.Section {
			return &section{ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 1}}
		}},
		New: func(env controller.Env, _ schema.Section) (*controller.Controller, error) {
			queue := work.NewQueue(env.Work, work.Options[string]{Name: name, Reconcile: func(ctx context.Context, key string) (work.Result, error) {
				_, err := reconcile(ctx, key)
				return work.Result{RequeueAfter: 20 * time.Millisecond}, err
			}})
			queue.Add("the-key")
			return &controller.Controller{}, nil
		},
	}
}

// process is a Manager that runs, with controllers of the test's own.
type process struct {
	t      *testing.T
	config *schema.ControllerManagerConfiguration
	file   string
	url    string
	http   *http.Client
	stop   context.CancelFunc
	ended  chan error
}

// run runs a Manager, which stands for a lease of its own, until the test ends
// at the latest.
func run(t *testing.T, cp *controlplane.ControlPlane, lease string, descriptors ...controller.Descriptor) *process {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	certificate, key := filepath.Join(dir, "admin.crt"), filepath.Join(dir, "admin.key")
	if err := errors.Join(
		cp.WriteKubeconfig(kubeconfig, "manager", "system:masters"),
		cp.WriteClientCertificate(certificate, key, "admin", "system:masters"),
	); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	types := make([]schema.SectionType, 0, len(descriptors))
	for _, d := range descriptors {
		types = append(types, d.Section)
	}
	scheme := schema.NewScheme(types...)
	p := &process{
		t:      t,
		config: scheme.Default(),
		file:   filepath.Join(dir, "controller-manager.yaml"),
		ended:  make(chan error, 1),
	}
	port := freePort(t)
	p.url = fmt.Sprintf("https://127.0.0.1:%d", port)
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}} // self-signed
	t.Cleanup(transport.CloseIdleConnections)
	p.http = &http.Client{Timeout: 10 * time.Second, Transport: transport}
	p.edit(func(c *schema.ControllerManagerConfiguration) {
		c.Cluster.Kubeconfig = kubeconfig
		c.Cluster.UseServiceAccountCredentials = false
		c.LeaderElection.ResourceName = lease
		c.Reload.DrainTimeout.Duration = time.Second
		c.Server.BindAddress, c.Server.Port = "127.0.0.1", port
		c.Server.TLS.ClientCAFile = cp.PKI.CAFile
	})
	manager, err := runtime.New(runtime.Options{
		Config:      config.Options{Scheme: scheme, Path: p.file},
		Descriptors: descriptors,
		LogWriter:   t.Output(),
		// Other tests log meanwhile.
		LeaveProcessLogs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ended <- manager.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return p
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // nothing was accepted
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("%T is no TCP address", listener.Addr())
	}
	return address.Port
}

// edit changes the configuration file.
func (p *process) edit(change func(*schema.ControllerManagerConfiguration)) {
	p.t.Helper()
	change(p.config)
	text, err := yaml.Marshal(p.config)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.file+".new", text, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(p.file+".new", p.file); err != nil {
		p.t.Fatal(err)
	}
}

// status is one row of /debug/controllers.
type status struct {
	Name      string `json:"name"`
	State     string `json:"state"`
	Reason    string `json:"reason"`
	Restarts  int    `json:"restarts"`
	LastError string `json:"lastError"`
}

func (p *process) get(ctx context.Context, path string) (code int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := p.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

func (p *process) status(ctx context.Context, name string) (status, error) {
	_, body, err := p.get(ctx, "/debug/controllers")
	if err != nil {
		return status{}, err
	}
	var reply struct{ Controllers []status }
	if err := json.Unmarshal(body, &reply); err != nil {
		return status{}, err
	}
	for _, s := range reply.Controllers {
		if s.Name == name {
			return s, nil
		}
	}
	return status{}, fmt.Errorf("%s is not listed", name)
}

// expect waits until a controller satisfies want.
func (p *process) expect(name, what string, want func(status) bool) {
	p.t.Helper()
	eventually(p.t, soon, name+": "+what, func(ctx context.Context) error {
		s, err := p.status(ctx, name)
		if err == nil && !want(s) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
}

// reloadRecord as /debug/reloads shows it.
type reloadRecord struct {
	Result  string
	Trigger string
	Errors  []struct {
		Line    int
		Path    string
		Message string
	}
	Plan []struct{ Controller string }
}

// newestReload waits until the newest reload satisfies want.
func (p *process) newestReload(what string, want func(reloadRecord) bool) {
	p.t.Helper()
	eventually(p.t, soon, "the newest reload "+what, func(ctx context.Context) error {
		_, body, err := p.get(ctx, "/debug/reloads")
		if err != nil {
			return err
		}
		var reply struct{ Reloads []reloadRecord }
		if err := json.Unmarshal(body, &reply); err != nil {
			return err
		}
		if len(reply.Reloads) == 0 || !want(reply.Reloads[0]) {
			return fmt.Errorf("%s", body)
		}
		return nil
	})
}

// unhealthy waits until /healthz fails and names the controller.
func (p *process) unhealthy(name string) {
	p.t.Helper()
	eventually(p.t, soon, "/healthz names "+name, func(ctx context.Context) error {
		code, body, err := p.get(ctx, "/healthz")
		if err != nil {
			return err
		}
		if code != http.StatusInternalServerError || !strings.Contains(string(body), "[-]"+name+" failed") {
			return fmt.Errorf("%d: %s", code, body)
		}
		if code, _, err = p.get(ctx, "/healthz/"+name); err != nil || code != http.StatusInternalServerError {
			return fmt.Errorf("/healthz/%s: %d, %w", name, code, err)
		}
		return nil
	})
}

func eventually(t *testing.T, within time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, within, true, func(ctx context.Context) (bool, error) {
		last = condition(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: not within %s: %v", what, within, last)
	}
}

// untouched checks that a controller has gone on since count was before.
func (p *process) untouched(name string, count *atomic.Int64) {
	p.t.Helper()
	before := count.Load()
	eventually(p.t, soon, name+" goes on", func(context.Context) error {
		if count.Load() == before {
			return fmt.Errorf("it has reconciled %d times", before)
		}
		return nil
	})
	s, err := p.status(p.t.Context(), name)
	if err != nil {
		p.t.Fatal(err)
	}
	if s.State != "Running" || s.Restarts != 0 {
		p.t.Errorf("%s was touched: %+v", name, s)
	}
	if code, body, err := p.get(p.t.Context(), "/healthz/"+name); err != nil || code != http.StatusOK {
		p.t.Errorf("/healthz/%s: %d %s, %v", name, code, body, err)
	}
}

func counted(count *atomic.Int64) work.Reconciler[string] {
	return func(context.Context, string) (work.Result, error) {
		count.Add(1)
		return work.Result{}, nil
	}
}

// A controller that panics, in a reconcile or while it is made, fails alone; it
// is started again after a wait that grows, and runs once it has stopped panicking.
func TestAPanicFailsItsControllerAlone(t *testing.T) {
	var healthy atomic.Int64
	var mended atomic.Bool
	panicking := func(context.Context, string) (work.Result, error) {
		if !mended.Load() {
			panic("a reconcile panics")
		}
		return work.Result{}, nil
	}
	unmakable := descriptor("unmakable-controller", panicking)
	makeIt := unmakable.New
	unmakable.New = func(env controller.Env, s schema.Section) (*controller.Controller, error) {
		if !mended.Load() {
			panic("New panics")
		}
		return makeIt(env, s)
	}
	cp := controlplane.Shared(t)
	p := run(t, cp, cp.Namespace(t), descriptor("healthy-controller", counted(&healthy)), descriptor("panicking-controller", panicking), unmakable)

	for name, says := range map[string]string{"panicking-controller": "a reconcile panics", "unmakable-controller": "New panics"} {
		p.expect(name, "has failed and says why", func(s status) bool {
			return s.State == "Failed" && strings.Contains(s.Reason, says) && strings.Contains(s.LastError, says)
		})
		p.unhealthy(name)
		p.expect(name, "was started again", func(s status) bool { return s.Restarts >= 1 })
	}
	p.untouched("healthy-controller", &healthy)
	// 1 s, 2 s, 4 s: three restarts take 7 s.
	s, err := p.status(t.Context(), "panicking-controller")
	if err != nil {
		t.Fatal(err)
	}
	if s.Restarts > 10 {
		t.Errorf("it was started again %d times without waiting", s.Restarts)
	}
	mended.Store(true)
	for _, name := range []string{"panicking-controller", "unmakable-controller"} {
		p.expect(name, "runs", func(s status) bool { return s.State == "Running" })
	}
	p.untouched("healthy-controller", &healthy)
	p.stop()
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
}

// A reconcile that ignores the end of its context leaves its controller Stuck,
// never beside a second instance, and the others alone.
func TestAHangIsContained(t *testing.T) {
	var healthy, running atomic.Int64
	release := make(chan struct{})
	hang := func(context.Context, string) (work.Result, error) {
		if running.Add(1) > 1 {
			t.Error("a second instance reconciles beside the stuck one")
		}
		defer running.Add(-1)
		<-release
		return work.Result{}, nil
	}
	cp := controlplane.Shared(t)
	p := run(t, cp, cp.Namespace(t), descriptor("healthy-controller", counted(&healthy)), descriptor("hanging-controller", hang))
	eventually(t, soon, "the controller hangs", func(context.Context) error {
		if running.Load() == 0 {
			return errors.New("it does not reconcile")
		}
		return nil
	})
	enabled := func(on bool) func(*schema.ControllerManagerConfiguration) {
		return func(c *schema.ControllerManagerConfiguration) {
			c.Controllers.Sections["hanging-controller"].Base().Enabled = on
		}
	}
	p.edit(enabled(false))
	p.expect("hanging-controller", "is stuck and says where", func(s status) bool {
		return s.State == "Stuck" && strings.Contains(s.Reason, "the-key")
	})
	p.unhealthy("hanging-controller")
	p.untouched("healthy-controller", &healthy)

	// The file is still followed, and the stuck one not started again.
	p.edit(func(c *schema.ControllerManagerConfiguration) {
		enabled(true)(c)
		c.Controllers.Sections["healthy-controller"].Base().Enabled = false
	})
	p.expect("healthy-controller", "is stopped", func(s status) bool { return s.State == "Disabled" })
	p.expect("hanging-controller", "is stuck", func(s status) bool { return s.State == "Stuck" })
	close(release)
	p.expect("hanging-controller", "runs again", func(s status) bool { return s.State == "Running" })
}

// A controller that goes on after the lease was lost ends the process: it could
// write beside the next leader.
func TestAHangAfterTheLossOfTheLeaseEndsTheProcess(t *testing.T) {
	release, hanging := make(chan struct{}), make(chan struct{})
	hang := func(context.Context, string) (work.Result, error) {
		close(hanging)
		<-release
		return work.Result{}, nil
	}
	cp := controlplane.Shared(t)
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	lease := cp.Namespace(t)
	p := run(t, cp, lease, descriptor("hanging-controller", hang))
	select {
	case <-hanging:
	case <-time.After(soon):
		t.Fatal("it does not reconcile")
	}
	leases := client.CoordinationV1().Leases("kube-system")
	eventually(t, soon, "the lease is stolen", func(ctx context.Context) error {
		stolen, err := leases.Get(ctx, lease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := metav1.NowMicro()
		stolen.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("thief"), LeaseDurationSeconds: ptr.To[int32](3600), AcquireTime: &now, RenewTime: &now,
		}
		_, err = leases.Update(ctx, stolen, metav1.UpdateOptions{})
		return err
	})
	select {
	case err := <-p.ended:
		if err == nil || !strings.Contains(err.Error(), "hanging-controller") {
			t.Errorf("the process ended with %v, which does not name the controller", err)
		}
	case <-time.After(soon):
		t.Error("the process goes on")
		p.stop()
	}
	close(release)
}

// A reload that waits for a controller to finish is shown before it is done.
func TestAReloadUnderWayIsShown(t *testing.T) {
	release, hanging := make(chan struct{}), make(chan struct{})
	p := run(t, controlplane.Shared(t), "slow", descriptor("slow-controller", func(context.Context, string) (work.Result, error) {
		close(hanging)
		<-release
		return work.Result{}, nil
	}))
	select {
	case <-hanging:
	case <-time.After(soon):
		t.Fatal("it does not reconcile")
	}
	p.edit(func(c *schema.ControllerManagerConfiguration) {
		c.Reload.DrainTimeout.Duration = time.Minute // it is to be seen under way
		c.Controllers.Sections["slow-controller"].Base().Enabled = false
	})
	p.newestReload("is under way", func(r reloadRecord) bool { return r.Result == "applying" && len(r.Plan) > 0 })
	close(release)
	p.newestReload("is applied", func(r reloadRecord) bool { return r.Result == "applied" && len(r.Plan) > 0 })
}

// A file that is rejected while an older one is still being applied is the
// newest, also when the older one is done.
func TestARejectionDuringAReloadStaysTheNewest(t *testing.T) {
	release, hanging := make(chan struct{}), make(chan struct{})
	p := run(t, controlplane.Shared(t), "rejected-meanwhile", descriptor("slow-controller", func(context.Context, string) (work.Result, error) {
		close(hanging)
		<-release
		return work.Result{}, nil
	}))
	select {
	case <-hanging:
	case <-time.After(soon):
		t.Fatal("it does not reconcile")
	}
	p.edit(func(c *schema.ControllerManagerConfiguration) {
		c.Reload.DrainTimeout.Duration = time.Minute // it is to be seen under way
		c.Controllers.Sections["slow-controller"].Base().Enabled = false
	})
	p.newestReload("is under way", func(r reloadRecord) bool { return r.Result == "applying" && len(r.Plan) > 0 })
	if err := os.WriteFile(p.file, []byte("not: [closed"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.newestReload("is rejected", func(r reloadRecord) bool { return r.Result == "rejected" })
	applied := p.metric("wheelhouse_config_reloads_total{result=\"applied\"} ")
	close(release)
	eventually(t, soon, "the older one is applied", func(context.Context) error {
		if p.metric("wheelhouse_config_reloads_total{result=\"applied\"} ") == applied {
			return errors.New("it is not counted")
		}
		return nil
	})
	p.newestReload("is the rejected one", func(r reloadRecord) bool { return r.Result == "rejected" })
	if got := p.metric("wheelhouse_config_last_reload_successful "); got != "0" {
		t.Errorf("the last reload is shown as successful: %s", got)
	}
}

// expectMetric waits for the value of a series.
func (p *process) expectMetric(series, want string) {
	p.t.Helper()
	eventually(p.t, soon, series+want, func(context.Context) error {
		if got := p.metric(series); got != want {
			return errors.New("it is " + got)
		}
		return nil
	})
}

// metric is the value of the series that begins as given.
func (p *process) metric(series string) string {
	p.t.Helper()
	_, body, err := p.get(p.t.Context(), "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	_, value, found := strings.Cut(string(body), "\n"+series)
	if !found {
		p.t.Fatalf("no %s in the metrics", series)
	}
	value, _, _ = strings.Cut(value, "\n")
	return value
}

// A port that is in use does not hold up the rest of an edit, is said with
// its place in the file, and is served as soon as it is free.
func TestAPortIsServedOnceItIsFree(t *testing.T) {
	var count atomic.Int64
	cp := controlplane.Shared(t)
	p := run(t, cp, "occupied", descriptor("worker", counted(&count)))
	running := func(s status) bool { return s.State == "Running" }
	p.expect("worker", "runs", running)
	occupant, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer occupant.Close() // it may be closed already
	address, ok := occupant.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatalf("%T is no TCP address", occupant.Addr())
	}
	p.edit(func(c *schema.ControllerManagerConfiguration) {
		c.Server.Port = address.Port
		c.Controllers.Sections["worker"].Base().Enabled = false
	})
	p.expect("worker", "is disabled by the same edit", func(s status) bool { return s.State == "Disabled" })
	p.newestReload("is recorded with its error", func(r reloadRecord) bool { return len(r.Errors) == 1 && r.Errors[0].Line > 0 })
	p.expectMetric("wheelhouse_config_last_reload_successful ", "0")
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	eventually(t, soon, "a warning names the port", func(ctx context.Context) error {
		events, err := client.CoreV1().Events(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.name=occupied,reason=ConfigReloaded,type=Warning",
		})
		if err == nil && (len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, "server.bindAddress, server.port")) {
			err = fmt.Errorf("%+v", events.Items)
		}
		return err
	})
	if err := occupant.Close(); err != nil {
		t.Fatal(err)
	}
	p.url = fmt.Sprintf("https://127.0.0.1:%d", address.Port)
	p.expect("worker", "is shown on the new port", func(s status) bool { return s.State == "Disabled" })
	p.newestReload("says that nothing is left to do", func(r reloadRecord) bool {
		return r.Trigger == "retry" && r.Result == "applied" && len(r.Errors) == 0
	})
	p.expectMetric("wheelhouse_config_last_reload_successful ", "1")
}
