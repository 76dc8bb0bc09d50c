package schema_test

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

const peerMeta = "apiVersion: " + schema.PeerAPIVersion + "\nkind: " + schema.PeerKind + "\n"

func TestConfigurationOfThePeer(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	section := func(c *schema.ControllerManagerConfiguration, name string) *schema.ControllerSettings {
		return c.Controllers.Sections[name].Base()
	}
	tests := []struct {
		name, file string
		// change turns the defaults, with the peer's own for credentials, into what is expected.
		change   func(*schema.ControllerManagerConfiguration)
		warnings string
	}{
		{"nothing but kind", peerMeta, func(*schema.ControllerManagerConfiguration) {}, ""},
		{"zero is the default", peerMeta + `
Generic: {ControllerStartInterval: 0s, ClientConnection: {qps: 0, burst: 0}, Controllers: [], LeaderElection: {leaseDuration: 0s, resourceName: ""}}
DeploymentController: {ConcurrentDeploymentSyncs: 0}
PodGCController: {TerminatedPodGCThreshold: 0}
HPAController: {HorizontalPodAutoscalerTolerance: 0}
`, func(*schema.ControllerManagerConfiguration) {}, ""},
		{"null is the default", peerMeta + "Generic:\nKubeCloudShared: null\nJobController: {ConcurrentJobSyncs: null}\n",
			func(*schema.ControllerManagerConfiguration) {}, ""},
		{"zero eviction rate is none", peerMeta + "NodeLifecycleController: {NodeEvictionRate: 0, LargeClusterSizeThreshold: 0}\n",
			func(c *schema.ControllerManagerConfiguration) {
				node := c.Controllers.Sections["node-lifecycle-controller"].(*schema.NodeLifecycleController)
				node.NodeEvictionRate, node.LargeClusterSizeThreshold = 0, 0
			}, ""},
		{"limits", peerMeta + "Generic: {ClientConnection: {qps: 50, burst: 100}}\n",
			func(c *schema.ControllerManagerConfiguration) { c.Cluster.Client.QPS, c.Cluster.Client.Burst = 50, 100 }, ""},
		{"no limit", peerMeta + "Generic: {ClientConnection: {qps: -1, burst: 100}}\n",
			func(*schema.ControllerManagerConfiguration) {}, ""},
		{"controllers", peerMeta + `Generic: {Controllers: ["*", bootstrapsigner, -ttl, ttl]}` + "\n",
			func(c *schema.ControllerManagerConfiguration) {
				section(c, "bootstrap-signer-controller").Enabled = true
				section(c, "ttl-controller").Enabled = false
			}, ""},
		{"garbage collector off", peerMeta + "GarbageCollectorController: {EnableGarbageCollector: false, GCIgnoredResources: [{Resource: pods}]}\n",
			func(c *schema.ControllerManagerConfiguration) {
				section(c, "garbage-collector-controller").Enabled = false
				c.Controllers.Sections["garbage-collector-controller"].(*schema.GarbageCollectorController).IgnoredResources =
					[]schema.GroupResource{{Resource: "pods"}}
			}, ""},
		{"ranges", peerMeta + `
KubeCloudShared: {AllocateNodeCIDRs: true, ClusterCIDR: "10.0.0.0/16,fd00::/48"}
NodeIPAMController: {ServiceCIDR: 10.96.0.0/12, SecondaryServiceCIDR: "fd01::/112", NodeCIDRMaskSizeIPv4: 25}
`, func(c *schema.ControllerManagerConfiguration) {
			c.Cluster.AllocateNodeCIDRs = true
			c.Cluster.ClusterCIDRs = []string{"10.0.0.0/16", "fd00::/48"}
			c.Cluster.ServiceCIDRs = []string{"10.96.0.0/12", "fd01::/112"}
			c.Controllers.Sections["node-ipam-controller"].(*schema.NodeIPAMController).NodeCIDRMaskSizeIPv4 = 25
		}, ""},
		{"second service range alone", peerMeta + `NodeIPAMController: {SecondaryServiceCIDR: "fd01::/112"}` + "\n",
			func(c *schema.ControllerManagerConfiguration) { c.Cluster.ServiceCIDRs = []string{"fd01::/112"} }, ""},
		{"recycler seconds", peerMeta + `
PersistentVolumeBinderController:
  VolumeConfiguration: {PersistentVolumeRecyclerConfiguration: {MaximumRetry: 9, MinimumTimeoutNFS: 90}}
`, func(c *schema.ControllerManagerConfiguration) {
			binder := c.Controllers.Sections["persistentvolume-binder-controller"].(*schema.PersistentVolumeBinderController)
			binder.Recycler.NFS.MinimumTimeout.Duration = 90 * time.Second
		}, ""},
		{"what the peer ignores is ignored", peerMeta + "Generic: {Port: 10252, Address: 127.0.0.1}\nNodeLifecycleController: {PodEvictionTimeout: 5m}\n",
			func(*schema.ControllerManagerConfiguration) {}, ""},
		{"what has no counterpart is warned of", peerMeta + "Generic: {MinResyncPeriod: 1h, Debugging: {enableContentionProfiling: true}}\n",
			func(*schema.ControllerManagerConfiguration) {},
			"file.yaml:3:28: Generic.MinResyncPeriod: is not carried over: informers are not resynced; controllers that look at " +
				"everything from time to time have a period of their own\n" +
				"file.yaml:3:71: Generic.Debugging.enableContentionProfiling: is not carried over: block profiling is not offered"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			file := test.file + "\n"
			layer, errs := s.DecodeFile("file.yaml", []byte(file))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			config, errs := build(t, s, layer)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			want := s.Default()
			want.Cluster.UseServiceAccountCredentials = false
			test.change(want)
			if diff := cmp.Diff(want, config); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
			if len(layer.Warnings) == 0 || layer.Warnings[0].Path != "KubeCloudShared.UseServiceAccountCredentials" {
				t.Fatalf("no warning about credentials: %v", layer.Warnings)
			}
			if have := layer.Warnings[1:].Error(); have != test.warnings {
				t.Errorf("warnings\n%s\nwant\n%s", have, test.warnings)
			}
		})
	}
}

// What the peer shows under /configz with its default flags is our defaults, but
// for its client limits and credentials.
func TestDefaultsOfThePeer(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	data, err := os.ReadFile("testdata/peer-configz.json")
	if err != nil {
		t.Fatal(err)
	}
	layer, errs := s.DecodeFile("configz.json", data)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if len(layer.Warnings) > 0 {
		t.Errorf("warnings: %v", layer.Warnings)
	}
	config, errs := build(t, s, layer)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := s.Default()
	want.Cluster.UseServiceAccountCredentials = false
	want.Cluster.Client.QPS, want.Cluster.Client.Burst = 20, 30
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
}
