package telemetry_test

import (
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // the peer's own families, to compare with

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

// scrape returns the families as a scraper sees them.
func scrape(t testing.TB, m *telemetry.Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	must(t, err)
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	must(t, err)
	return families
}

// series of a family, as name{labels} value, sorted.
func series(f *dto.MetricFamily) []string {
	var all []string
	for _, m := range f.GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		all = append(all, fmt.Sprintf("%s %v", strings.Join(labels, ","), value))
	}
	slices.Sort(all)
	return all
}

func expect(t testing.TB, m *telemetry.Metrics, family string, want ...string) {
	t.Helper()
	if got := series(scrape(t, m)[family]); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", family, got, want)
	}
}

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// filled has a value in every family.
func filled() *telemetry.Metrics {
	m := telemetry.NewMetrics()
	m.SetSources(telemetry.Sources{
		Controllers: func() []telemetry.ControllerStatus {
			return []telemetry.ControllerStatus{
				{Name: "deployment-controller", State: "Running", Running: true, Restarts: 2, Panics: 1},
				{Name: "replicaset-controller", State: "Failed"},
			}
		},
		Informers: func() []informers.Status {
			return []informers.Status{
				{
					Resource: "pods", Users: []string{"a", "b"}, Objects: 7, Synced: true,
					GroupVersionResource: podResource, ResourceVersion: "7123456789012345",
				},
				{Resource: "pods", Metadata: true, Objects: 9, GroupVersionResource: podResource, ResourceVersion: "12"},
				{Resource: "pods", Selection: "in a", Objects: 2, GroupVersionResource: podResource, ResourceVersion: "13"},
			}
		},
		FencedRequests: func() int64 { return 3 },
		Leader:         func() bool { return true },
	})
	m.SetFeature("CoordinatedLeaderElection", "BETA", false)
	m.SetFeature("JobManagedBy", "", true)
	m.ReloadApplied(time.UnixMilli(1_700_000_000_500), true)
	m.SetPendingRestart(2)
	return m
}

func TestOwnFamilies(t *testing.T) {
	m := filled()
	expect(t, m, "running_managed_controllers",
		"manager=kube-controller-manager,name=deployment-controller 1", "manager=kube-controller-manager,name=replicaset-controller 0")
	expect(t, m, "wheelhouse_controller_restarts_total", "name=deployment-controller 2", "name=replicaset-controller 0")
	expect(t, m, "wheelhouse_controller_panics_total", "name=deployment-controller 1", "name=replicaset-controller 0")
	expect(t, m, "wheelhouse_fenced_requests_total", " 3")
	expect(t, m, "wheelhouse_leader", " 1")
	expect(t, m, "wheelhouse_informers", " 3")
	expect(t, m, "wheelhouse_informer_objects", "metadata=false,resource=pods (in a) 2", "metadata=false,resource=pods 7",
		"metadata=true,resource=pods 9")
	expect(t, m, "wheelhouse_informer_synced", "metadata=false,resource=pods (in a) 0", "metadata=false,resource=pods 1",
		"metadata=true,resource=pods 0")
	expect(t, m, "wheelhouse_informer_users", "metadata=false,resource=pods (in a) 0", "metadata=false,resource=pods 2",
		"metadata=true,resource=pods 0")
	expect(t, m, "informer_store_resource_version",
		"group=,name=kube-controller-manager,resource=pods,version=v1 1.23456789012345e+14")
	expect(t, m, "wheelhouse_config_pending_restart", " 2")
	expect(t, m, "wheelhouse_config_last_reload_success_timestamp_seconds", " 1.7000000005e+09")
	expect(t, m, "kubernetes_feature_enabled", "name=CoordinatedLeaderElection,stage=BETA 0", "name=JobManagedBy,stage= 1")
	states := series(scrape(t, m)["wheelhouse_controller_state"])
	if len(states) != 18 || !slices.Contains(states, "name=replicaset-controller,state=Failed 1") ||
		!slices.Contains(states, "name=replicaset-controller,state=Running 0") {
		t.Errorf("states %q", states)
	}

	expect(t, m, "wheelhouse_config_last_reload_successful", " 1")
	m.ReloadRejected()
	m.ReloadRejected()
	m.ReloadSuperseded()
	expect(t, m, "wheelhouse_config_last_reload_successful", " 0")
	expect(t, m, "wheelhouse_config_reloads_total", "result=applied 1", "result=rejected 2", "result=superseded 1")

	m.ReloadApplied(time.Now(), false)
	expect(t, m, "wheelhouse_config_last_reload_successful", " 0")
	expect(t, m, "wheelhouse_config_reloads_total", "result=applied 2", "result=rejected 2", "result=superseded 1")
}

func TestFamiliesKeepPrometheusConventions(t *testing.T) {
	for name, family := range scrape(t, filled()) {
		if !strings.HasPrefix(name, "wheelhouse_") {
			continue
		}
		problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{family}).Lint()
		must(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// The Kubernetes libraries' families are served under their own names.
func TestPeersFamiliesAreServed(t *testing.T) {
	m := telemetry.NewMetrics()
	clientmetrics.EnsureRegistered()
	clientmetrics.RequestResult.Increment(t.Context(), "200", "GET", "host")
	families := scrape(t, m)
	for _, name := range []string{
		"rest_client_requests_total", "rest_client_transport_cache_entries", "kubernetes_build_info",
		"go_goroutines", "go_gc_duration_seconds", "process_cpu_seconds_total", "process_start_time_seconds", "registered_metrics_total",
	} {
		if len(families[name].GetMetric()) == 0 {
			t.Errorf("no %s", name)
		}
	}
}

// Queues that libraries make for themselves, such as those of apiserver, go to
// the process's provider. Both must fit into one family.
func TestQueueFamiliesAreThePeers(t *testing.T) {
	m := telemetry.NewMetrics()
	ours := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "ours", MetricsProvider: m})
	defer ours.ShutDown()
	// Of its own in each run, since the process's registry keeps it.
	theirName := fmt.Sprintf("theirs-%d", time.Now().UnixNano())
	theirs := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: theirName})
	defer theirs.ShutDown()
	for _, q := range []workqueue.TypedRateLimitingInterface[string]{ours, theirs} {
		q.Add("key")
		key, _ := q.Get()
		q.AddAfter("later", time.Hour)
		q.Done(key)
		q.Add("waits")
	}
	families := scrape(t, m)
	for name, want := range map[string]int{
		"workqueue_depth": 1, "workqueue_adds_total": 2, "workqueue_retries_total": 1,
		"workqueue_queue_duration_seconds": 1, "workqueue_work_duration_seconds": 1,
		"workqueue_unfinished_work_seconds": 0, "workqueue_longest_running_processor_seconds": 0,
	} {
		want := []string{fmt.Sprintf("name=ours %d", want), fmt.Sprintf("name=%s %d", theirName, want)}
		got := slices.DeleteFunc(series(families[name]), func(s string) bool {
			return !strings.HasPrefix(s, "name=ours ") && !strings.HasPrefix(s, "name="+theirName+" ")
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		var buckets [][]float64
		for _, metric := range families[name].GetMetric() {
			var bounds []float64
			for _, b := range metric.GetHistogram().GetBucket() {
				bounds = append(bounds, b.GetUpperBound())
			}
			buckets = append(buckets, bounds)
		}
		if !slices.Equal(buckets[0], buckets[1]) {
			t.Errorf("%s: buckets %v and %v", name, buckets[0], buckets[1])
		}
	}
}

func TestQueueSeriesEndWithTheQueue(t *testing.T) {
	m := telemetry.NewMetrics()
	expect := func(family string, want ...string) {
		t.Helper()
		got := slices.DeleteFunc(series(scrape(t, m)[family]), func(s string) bool {
			return strings.HasPrefix(s, "name=theirs-") // in the process's own registry
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", family, got, want)
		}
	}
	newQueue := func(name string) workqueue.TypedInterface[string] {
		return workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: name, MetricsProvider: m})
	}
	kept := newQueue("kept")
	defer kept.ShutDown()
	kept.Add("key")
	for range 500 {
		q := newQueue("deployment")
		q.Add("key")
		q.ShutDown()
		m.DeleteQueue("deployment")
	}
	expect("workqueue_depth", "name=kept 1")
	expect("workqueue_work_duration_seconds", "name=kept 0")

	// Queues that share a name share its series to the last.
	one, two := newQueue("certificate"), newQueue("certificate")
	defer one.ShutDown()
	defer two.ShutDown()
	one.Add("key")
	m.DeleteQueue("certificate")
	expect("workqueue_adds_total", "name=certificate 1", "name=kept 1")
	m.DeleteQueue("certificate")
	expect("workqueue_adds_total", "name=kept 1")
}

func newCounter(name string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: "Help."}, []string{"l"})
}

func TestCollectorsOutliveRestartsOfTheirController(t *testing.T) {
	m := telemetry.NewMetrics()
	for range 3 { // lives of the controller
		c, err := telemetry.Register(m.Controller("a"), newCounter("a_total"))
		must(t, err)
		c.WithLabelValues("x").Inc()
	}
	expect(t, m, "a_total", "l=x 3")
	m.DropController("a")
	expect(t, m, "a_total")
	m.DropController("a") // again is harmless
	c, err := telemetry.Register(m.Controller("a"), newCounter("a_total"))
	must(t, err)
	c.WithLabelValues("x").Inc()
	expect(t, m, "a_total", "l=x 1")
}

func TestControllersShareEqualFamilies(t *testing.T) {
	m := telemetry.NewMetrics()
	for _, controller := range []string{"replicaset-controller", "replicationcontroller-controller"} {
		c, err := telemetry.Register(m.Controller(controller), newCounter("replicaset_total"))
		must(t, err)
		c.WithLabelValues("x").Inc()
	}
	expect(t, m, "replicaset_total", "l=x 2")
	m.DropController("replicaset-controller")
	expect(t, m, "replicaset_total", "l=x 2")
	m.DropController("replicationcontroller-controller")
	expect(t, m, "replicaset_total")
}

func TestControllerRegistererIsARegisterer(t *testing.T) {
	m := telemetry.NewMetrics()
	r := m.Controller("a")
	c := newCounter("a_total")
	r.MustRegister(c)
	if err := r.Register(newCounter("a_total")); !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Errorf("registered twice: %v", err)
	}
	if err := r.Register(prometheus.NewGauge(prometheus.GaugeOpts{Name: "a_total", Help: "Other."})); err == nil {
		t.Error("another help text accepted")
	}
	if m.Controller("b").Unregister(c) {
		t.Error("unregistered by another controller")
	}
	if !r.Unregister(c) || r.Unregister(c) {
		t.Error("unregister")
	}
	expect(t, m, "a_total")
}

// Metrics can be made more than once in a process, by tests or embedders.
func TestRegistriesAreIndependent(t *testing.T) {
	one, two := telemetry.NewMetrics(), telemetry.NewMetrics()
	one.ReloadRejected()
	expect(t, two, "wheelhouse_config_reloads_total", "result=applied 0", "result=rejected 0", "result=superseded 0")
	if legacyregistry.DefaultGatherer == nil {
		t.Error("no process-wide registry")
	}
}
