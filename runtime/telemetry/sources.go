package telemetry

import (
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

// manager is the label that kube-controller-manager gives its controllers.
const manager = "kube-controller-manager"

// ControllerStatus is what the metrics tell about one controller.
type ControllerStatus struct {
	Name string
	// State as in supervisor.State.
	State string
	// Running is the value of running_managed_controllers.
	Running  bool
	Restarts int
	Panics   int
}

// Sources are asked at each scrape. Nil ones have no metrics.
type Sources struct {
	Controllers    func() []ControllerStatus
	Informers      func() []informers.Status
	FencedRequests func() int64
	Leader         func() bool
}

// states of a controller, as in package supervisor: each has a series, so that
// a state that was left is seen to be 0.
var states = []string{
	"Disabled", "Unavailable", "Standby", "Waiting", "Starting", "Running", "Stopping", "Failed", "Stuck",
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

var (
	runningDesc = prometheus.NewDesc("running_managed_controllers",
		"[BETA] Indicates where instances of a controller are currently running", []string{"name", "manager"}, nil)
	stateDesc = desc("controller_state",
		"The state of each controller: 1 for the present one, 0 for all others.", "name", "state")
	restartsDesc = desc("controller_restarts_total",
		"How often each controller was started again, whatever the reason.", "name")
	panicsDesc = desc("controller_panics_total",
		"How often each controller panicked.", "name")
	leaderDesc = desc("leader",
		"Whether this process leads: 1 it does, 0 it stands by.")
	fencedDesc = desc("fenced_requests_total",
		"Requests that were refused locally because the lease may have run out.")
	informersDesc = desc("informers",
		"Informers in this process.")
	objectsDesc = desc("informer_objects",
		"Objects that each informer holds.", "resource", "metadata")
	syncedDesc = desc("informer_synced",
		"Whether each informer has its initial list: 1 it has, 0 it has not.", "resource", "metadata")
	usersDesc = desc("informer_users",
		"Controllers that use each informer.", "resource", "metadata")
	storeVersionDesc = prometheus.NewDesc("informer_store_resource_version",
		"[ALPHA] The 15 least significant digits of the resource version of the store.",
		[]string{"name", "group", "version", "resource"}, nil)
)

// storeVersion is false for a version that is no number, as of an aggregated API.
func storeVersion(version string) (float64, bool) {
	const digits = 15 // all of them fit into a float64
	number, err := strconv.ParseUint(version[max(0, len(version)-digits):], 10, 64)
	return float64(number), err == nil
}

// sourceCollector turns the sources' answers into metrics.
type sourceCollector struct{ sources *atomic.Pointer[Sources] }

// Describe implements prometheus.Collector.
func (c sourceCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		runningDesc, stateDesc, restartsDesc, panicsDesc, leaderDesc, fencedDesc,
		informersDesc, objectsDesc, syncedDesc, usersDesc, storeVersionDesc,
	} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c sourceCollector) Collect(metrics chan<- prometheus.Metric) {
	s := c.sources.Load()
	if s == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
	}
	if s.Controllers != nil {
		for _, status := range s.Controllers() {
			gauge(runningDesc, number(status.Running), status.Name, manager)
			for _, state := range states {
				gauge(stateDesc, number(state == status.State), status.Name, state)
			}
			if !slices.Contains(states, status.State) {
				gauge(stateDesc, 1, status.Name, status.State)
			}
			counter(restartsDesc, float64(status.Restarts), status.Name)
			counter(panicsDesc, float64(status.Panics), status.Name)
		}
	}
	if s.Leader != nil {
		gauge(leaderDesc, number(s.Leader()))
	}
	if s.FencedRequests != nil {
		counter(fencedDesc, float64(s.FencedRequests()))
	}
	if s.Informers != nil {
		all := s.Informers()
		gauge(informersDesc, float64(len(all)))
		for _, i := range all {
			resource, metadata := i.Resource, strconv.FormatBool(i.Metadata)
			if i.Selection != "" {
				resource += " (" + i.Selection + ")"
			}
			gauge(objectsDesc, float64(i.Objects), resource, metadata)
			gauge(syncedDesc, number(i.Synced), resource, metadata)
			gauge(usersDesc, float64(len(i.Users)), resource, metadata)
			if version, ok := storeVersion(i.ResourceVersion); ok && !i.Metadata && i.Selection == "" {
				gvr := i.GroupVersionResource
				gauge(storeVersionDesc, version, manager, gvr.Group, gvr.Version, gvr.Resource)
			}
		}
	}
}
