package daemonset

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
)

// Each life of the controller counts on.
func TestSkipsAreCountedAcrossRestarts(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for range 2 {
		m, err := newMetrics(registry)
		if err != nil {
			t.Fatal(err)
		}
		m.stale(apischema.GroupResource{Group: "apps", Resource: "daemonsets"})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != 1 || families[0].GetName() != "daemonset_controller_stale_sync_skips_total" {
		t.Fatalf("metrics %v", families)
	}
	metric := families[0].GetMetric()[0]
	labels := map[string]string{}
	for _, label := range metric.GetLabel() {
		labels[label.GetName()] = label.GetValue()
	}
	if labels["group"] != "apps" || labels["resource"] != "daemonsets" || metric.GetCounter().GetValue() != 2 {
		t.Errorf("metric %v", metric)
	}
}
