package schema_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

const typeMeta = "apiVersion: " + schema.APIVersion + "\nkind: " + schema.Kind + "\n"

func TestDefaultLayerBuildsTheDefaults(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	config, errs := build(t, s)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if diff := cmp.Diff(s.Default(), config); diff != "" {
		t.Errorf("(-default +built):\n%s", diff)
	}
	if config, errs = s.Build(nil, nil); len(errs) > 0 || !cmp.Equal(s.Default(), config) {
		t.Errorf("nothing given builds %v, %v, want the defaults", config, errs)
	}
}

func TestTheFileOfDefaultsEqualsTheDefaults(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	data, err := os.ReadFile("../controller-manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	layer, errs := s.DecodeFile("controller-manager.yaml", data)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if diff := cmp.Diff(s.DefaultLayer().Values, layer.Values); diff != "" {
		t.Errorf("values (-default +file):\n%s", diff)
	}
	config, errs := build(t, s, layer)
	if len(errs) > 0 || !cmp.Equal(s.Default(), config) {
		t.Errorf("the file differs from the defaults: %v\n%s", errs, cmp.Diff(s.Default(), config))
	}
}

func TestStrongerLayersWin(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	file, errs := s.DecodeFile("file.yaml", []byte(typeMeta+`
cluster:
  name: of-file
  clusterCIDRs: [10.0.0.0/16, fd00::/56]
featureGates: {AllAlpha: true, WatchListClient: false}
logging: {level: 2}
controllers:
  deployment: {workers: 7}
  job-controller:
`))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	env, errs := s.DecodeEnv([]string{
		"WHEELHOUSE_LOGGING_LEVEL=3",
		"WHEELHOUSE_CLUSTER_CLUSTER_CIDRS=10.1.0.0/16",
		"WHEELHOUSE_FEATURE_GATES_WATCH_LIST_CLIENT=true",
		"WHEELHOUSE_CONTROLLERS_DEPLOYMENT_WORKERS=8",
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	set, errs := s.DecodeSet("logging.level=4")
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	config, errs := build(t, s, file, env, set)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := s.Default()
	want.Cluster.Name = "of-file"
	want.Cluster.ClusterCIDRs = []string{"10.1.0.0/16"}
	want.FeatureGates = map[string]bool{"AllAlpha": true, "WatchListClient": true}
	want.Logging.Level = 4
	want.Controllers.Sections["deployment-controller"].Base().Workers = 8
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	origins := schema.MergeOrigins(s.DefaultLayer(), file, env, set)
	for path, want := range map[string]schema.Origin{
		"cluster.name":                              {Layer: "file", Source: "file.yaml", Line: 5, Column: 9},
		"cluster.clusterCIDRs":                      {Layer: "env", Source: "WHEELHOUSE_CLUSTER_CLUSTER_CIDRS"},
		"featureGates.AllAlpha":                     {Layer: "file", Source: "file.yaml", Line: 7, Column: 26},
		"featureGates.WatchListClient":              {Layer: "env", Source: "WHEELHOUSE_FEATURE_GATES_WATCH_LIST_CLIENT"},
		"logging.level":                             {Layer: "set", Source: "--set logging.level"},
		"controllers.deployment-controller.workers": {Layer: "env", Source: "WHEELHOUSE_CONTROLLERS_DEPLOYMENT_WORKERS"},
		"controllers.job-controller.workers":        {Layer: "default"},
	} {
		if origins[path] != want {
			t.Errorf("origin of %s is %+v, want %+v", path, origins[path], want)
		}
	}
}

func TestGoodFiles(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	workers := func(name string, n int) func(*schema.ControllerManagerConfiguration) {
		return func(c *schema.ControllerManagerConfiguration) { c.Controllers.Sections[name].Base().Workers = n }
	}
	tests := []struct {
		name, file string
		change     func(*schema.ControllerManagerConfiguration)
	}{
		{"nothing but kind", typeMeta, func(*schema.ControllerManagerConfiguration) {}},
		{"JSON", `{"apiVersion": "` + schema.APIVersion + `", "kind": "` + schema.Kind + `", "controllers": {"job": {"workers": 3}}}`,
			workers("job-controller", 3)},
		{"leading document marker", "---\n" + typeMeta + "controllers: {job: {workers: 3}}\n", workers("job-controller", 3)},
		{"byte order mark", "\ufeff" + typeMeta + "controllers: {job: {workers: 3}}\n", workers("job-controller", 3)},
		{"Windows line ends", strings.ReplaceAll(typeMeta+"controllers:\n  job: {workers: 3}\n", "\n", "\r\n"), workers("job-controller", 3)},
		{"all children commented out", typeMeta + "cluster:\n  # name: x\ncontrollers:\n  job-controller:\n    # workers: 3\nfeatureGates:\n",
			func(*schema.ControllerManagerConfiguration) {}},
		{"anchors", typeMeta + "controllers:\n  job: &few {workers: 3}\n  cronjob: *few\n",
			func(c *schema.ControllerManagerConfiguration) {
				workers("job-controller", 3)(c)
				workers("cronjob-controller", 3)(c)
			}},
		{"merge keys, own values first", typeMeta + "controllers:\n  job: &few {enabled: false, workers: 3}\n  cronjob: {<<: *few, workers: 4}\n",
			func(c *schema.ControllerManagerConfiguration) {
				workers("job-controller", 3)(c)
				workers("cronjob-controller", 4)(c)
				c.Controllers.Sections["job-controller"].Base().Enabled = false
				c.Controllers.Sections["cronjob-controller"].Base().Enabled = false
			}},
		{"zero duration without unit", typeMeta + "reload: {pollInterval: 0}\n",
			func(c *schema.ControllerManagerConfiguration) { c.Reload.PollInterval.Duration = 0 }},
		{"duration in other words", typeMeta + "leaderElection: {leaseDuration: 0.5m}\n",
			func(c *schema.ControllerManagerConfiguration) {
				c.LeaderElection.LeaseDuration.Duration = 30 * time.Second
			}},
		{"a date is a string", typeMeta + "cluster: {name: 2026-01-31}\n",
			func(c *schema.ControllerManagerConfiguration) { c.Cluster.Name = "2026-01-31" }},
		{"a name that YAML 1.2 takes for a number", typeMeta + "cluster: {name: 0o14}\n",
			func(c *schema.ControllerManagerConfiguration) { c.Cluster.Name = "0o14" }},
		{"whole number for a fraction", typeMeta + "cluster: {client: {qps: 20, burst: 30}}\n",
			func(c *schema.ControllerManagerConfiguration) { c.Cluster.Client.QPS, c.Cluster.Client.Burst = 20, 30 }},
		{"limits of one controller", typeMeta + "controllers: {job: {client: {qps: 2.5, burst: 5}}}\n",
			func(c *schema.ControllerManagerConfiguration) {
				c.Controllers.Sections["job-controller"].Base().Client = &schema.ClientLimits{QPS: 2.5, Burst: 5}
			}},
		{"levels by alias", typeMeta + "logging: {modules: {deployment: 4, client-go: 2}}\n",
			func(c *schema.ControllerManagerConfiguration) {
				c.Logging.Modules = map[string]int{"deployment-controller": 4, "client-go": 2}
			}},
		{"a locked gate at its default", typeMeta + "featureGates: {JobManagedBy: true}\n",
			func(c *schema.ControllerManagerConfiguration) { c.FeatureGates["JobManagedBy"] = true }},
		{"dual stack", typeMeta + "cluster: {allocateNodeCIDRs: true, clusterCIDRs: [10.0.0.0/16, 'fd00::/48']}\n",
			func(c *schema.ControllerManagerConfiguration) {
				c.Cluster.AllocateNodeCIDRs = true
				c.Cluster.ClusterCIDRs = []string{"10.0.0.0/16", "fd00::/48"}
			}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			config, errs := load(t, s, "file.yaml", []byte(test.file))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			want := s.Default()
			test.change(want)
			if diff := cmp.Diff(want, config); diff != "" {
				t.Errorf("(-want +have):\n%s", diff)
			}
		})
	}
}

func TestFilesOfUnreasonableSize(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	comment := strings.Repeat("# "+strings.Repeat("x", 97)+"\n", schema.MaxFileSize/100)
	largest := (comment + typeMeta)[len(comment)+len(typeMeta)-schema.MaxFileSize:]
	if _, errs := s.DecodeFile("file.yaml", []byte("#"+largest[1:])); len(errs) > 0 {
		t.Errorf("a file of the largest size: %v", errs)
	}
	_, errs := s.DecodeFile("file.yaml", make([]byte, 10<<20))
	if want := "file.yaml: has 10485760 bytes; at most 1048576 are read"; errs.Error() != want {
		t.Errorf("10 MiB: %v, want %s", errs, want)
	}
	var many strings.Builder
	many.WriteString(typeMeta)
	for i := range 5000 {
		fmt.Fprintf(&many, "x%d: 1\n", i)
	}
	_, errs = s.DecodeFile("file.yaml", []byte(many.String()))
	if len(errs) != 101 || !strings.HasSuffix(errs[100].Error(), "and 4900 more errors from here on") {
		t.Errorf("5000 errors are %d, the last %q", len(errs), errs[len(errs)-1])
	}
}

func TestDecodeEnv(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	tests := []struct {
		name    string
		environ []string
		want    map[string]any
		errs    string
	}{
		{"others are left alone", []string{"PATH=/bin", "HOME=", "WHEELHOUSE=1", "=x", ""}, map[string]any{}, ""},
		{"any separators and case", []string{"WHEELHOUSE_leaderelection_LEASE_DURATION=20s"},
			map[string]any{"leaderElection": map[string]any{"leaseDuration": "20s"}}, ""},
		{"string that looks like a number", []string{"WHEELHOUSE_CLUSTER_NAME=42"},
			map[string]any{"cluster": map[string]any{"name": "42"}}, ""},
		{"list by commas", []string{"WHEELHOUSE_CLUSTER_CLUSTER_CIDRS=10.0.0.0/16, fd00::/56"},
			map[string]any{"cluster": map[string]any{"clusterCIDRs": []any{"10.0.0.0/16", "fd00::/56"}}}, ""},
		{"list in YAML", []string{`WHEELHOUSE_CLUSTER_CLUSTER_CIDRS=["10.0.0.0/16"]`},
			map[string]any{"cluster": map[string]any{"clusterCIDRs": []any{"10.0.0.0/16"}}}, ""},
		{"empty list", []string{"WHEELHOUSE_CLUSTER_CLUSTER_CIDRS=[]"},
			map[string]any{"cluster": map[string]any{"clusterCIDRs": []any{}}}, ""},
		{"mapping in YAML", []string{"WHEELHOUSE_FEATURE_GATES={AllAlpha: true}"},
			map[string]any{"featureGates": map[string]any{"AllAlpha": true}}, ""},
		{"one gate", []string{"WHEELHOUSE_FEATURE_GATES_ALL_ALPHA=true"},
			map[string]any{"featureGates": map[string]any{"AllAlpha": true}}, ""},
		{"one module by alias", []string{"WHEELHOUSE_LOGGING_MODULES_DEPLOYMENT=4"},
			map[string]any{"logging": map[string]any{"modules": map[string]any{"deployment-controller": int64(4)}}}, ""},
		{"alias", []string{"WHEELHOUSE_CONTROLLERS_PODGC_ENABLED=false"},
			map[string]any{"controllers": map[string]any{"pod-garbage-collector-controller": map[string]any{"enabled": false}}}, ""},
		{"service links of a Service called wheelhouse", []string{
			"WHEELHOUSE_SERVICE_HOST=10.96.0.1", "WHEELHOUSE_SERVICE_PORT=443", "WHEELHOUSE_SERVICE_PORT_HTTPS=443",
			"WHEELHOUSE_PORT=tcp://10.96.0.1:443", "WHEELHOUSE_PORT_443_TCP=tcp://10.96.0.1:443", "WHEELHOUSE_PORT_443_TCP_PROTO=tcp",
			"WHEELHOUSE_PORT_443_TCP_PORT=443", "WHEELHOUSE_PORT_443_TCP_ADDR=10.96.0.1",
			"WHEELHOUSE_METRICS_SERVICE_HOST=10.96.0.2", "WHEELHOUSE_METRICS_PORT_80_UDP_ADDR=10.96.0.2",
		}, map[string]any{}, ""},
		{"service link that is spelled like a setting", []string{"WHEELHOUSE_SERVER_PORT=tcp://10.96.0.1:443"}, map[string]any{}, ""},
		{"the setting", []string{"WHEELHOUSE_SERVER_PORT=8443"}, map[string]any{"server": map[string]any{"port": int64(8443)}}, ""},
		{"unknown", []string{"WHEELHOUSE_SERVER_PROT=1"}, map[string]any{},
			"WHEELHOUSE_SERVER_PROT: names no setting; did you mean WHEELHOUSE_SERVER_PORT?"},
		{"unknown, its value not shown", []string{"WHEELHOUSE_TOKEN=hunter2"}, map[string]any{},
			"WHEELHOUSE_TOKEN: names no setting; expected a path of the configuration, such as WHEELHOUSE_SERVER_PORT"},
		{"twice", []string{"WHEELHOUSE_SERVER_PORT=1", "WHEELHOUSE_SERVERPORT=2"}, map[string]any{"server": map[string]any{"port": int64(2)}},
			"WHEELHOUSE_SERVER_PORT: server.port: given by WHEELHOUSE_SERVERPORT too; unset one"},
		{"wrong type", []string{"WHEELHOUSE_SERVER_PORT=https"}, nil,
			`WHEELHOUSE_SERVER_PORT: server.port: expected a whole number of at least 0 and at most 65535, got the string "https"`},
		{"out of range", []string{"WHEELHOUSE_CONTROLLERS_JOB_CONTROLLER_WORKERS=0"}, nil,
			"WHEELHOUSE_CONTROLLERS_JOB_CONTROLLER_WORKERS: controllers.job-controller.workers: got 0, expected at least 1 and at most 10000"},
		{"empty", []string{"WHEELHOUSE_SERVER_PORT="}, nil,
			"WHEELHOUSE_SERVER_PORT: server.port: no value given; expected a whole number of at least 0 and at most 65535, " +
				"or remove the key to have the default"},
		{"not YAML", []string{"WHEELHOUSE_FEATURE_GATES={AllAlpha: true"}, map[string]any{},
			"WHEELHOUSE_FEATURE_GATES: featureGates: the value is not valid YAML"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			layer, errs := s.DecodeEnv(test.environ)
			if errs.Error() != test.errs {
				t.Errorf("errors\n%v\nwant\n%s", errs, test.errs)
			}
			if test.want != nil {
				if diff := cmp.Diff(test.want, layer.Values); diff != "" {
					t.Errorf("values (-want +have):\n%s", diff)
				}
			}
			if _, errs := build(t, s, layer); len(errs) > 0 {
				t.Errorf("Build complains again: %v", errs)
			}
		})
	}
}

func TestDecodeSet(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	tests := []struct {
		arg  string
		want map[string]any
		errs string
	}{
		{"server.port=8443", map[string]any{"server": map[string]any{"port": int64(8443)}}, ""},
		{"cluster.name=a=b", map[string]any{"cluster": map[string]any{"name": "a=b"}}, ""},
		{`cluster.name="quoted"`, map[string]any{"cluster": map[string]any{"name": "quoted"}}, ""},
		{"cluster.kubeconfig=", map[string]any{"cluster": map[string]any{"kubeconfig": ""}}, ""},
		{"reload.pollInterval=0", map[string]any{"reload": map[string]any{"pollInterval": "0s"}}, ""},
		{"reload.debounce= 0m30s ", map[string]any{"reload": map[string]any{"debounce": "30s"}}, ""},
		{"cluster.client.qps=2.5", map[string]any{"cluster": map[string]any{"client": map[string]any{"qps": 2.5}}}, ""},
		{"cluster.clusterCIDRs=10.0.0.0/16,fd00::/56",
			map[string]any{"cluster": map[string]any{"clusterCIDRs": []any{"10.0.0.0/16", "fd00::/56"}}}, ""},
		{"controllers.deployment={workers: 7, enabled: false}", map[string]any{"controllers": map[string]any{
			"deployment-controller": map[string]any{"workers": int64(7), "enabled": false}}}, ""},
		{"featureGates.AllAlpha=true", map[string]any{"featureGates": map[string]any{"AllAlpha": true}}, ""},
		{"controllers.garbagecollector.ignoredResources=[{group: apps, resource: deployments}]",
			map[string]any{"controllers": map[string]any{"garbage-collector-controller": map[string]any{
				"ignoredResources": []any{map[string]any{"group": "apps", "resource": "deployments"}}}}}, ""},
		{"", nil, "--set: expected path=value, such as controllers.deployment-controller.workers=7"},
		{"server.port", nil, "--set server.port: expected path=value, such as controllers.deployment-controller.workers=7"},
		{"=5", nil, "--set: expected path=value, such as controllers.deployment-controller.workers=7"},
		{"server..port=5", nil, `--set: got the path "server..port", expected names joined by dots`},
		{"server.prot=5", nil, `--set server.prot: server.prot: unknown field "prot"; did you mean "port"?`},
		{"controllers.depolyment.workers=5", nil,
			`--set controllers.depolyment.workers: controllers.depolyment: unknown controller "depolyment"; did you mean "deployment"?`},
		{"server=5", nil, "--set server: server: expected a mapping, got the number 5"},
		{"server.port.number=5", nil, "--set server.port.number: server.port: expected a whole number of at least 0 and at most 65535, got a mapping"},
		{"server.port=many", nil, `--set server.port: server.port: expected a whole number of at least 0 and at most 65535, got the string "many"`},
		{"cluster.clusterCIDRs=", nil, "--set cluster.clusterCIDRs: cluster.clusterCIDRs: no value given; write [] for an empty list"},
		{"cluster.clusterCIDRs=10.0.0.0/16,nonsense", nil, `--set cluster.clusterCIDRs: cluster.clusterCIDRs[1]: got "nonsense", ` +
			`expected an address range such as 10.244.0.0/16 or fd00:10:244::/56`},
		{"apiVersion=v2", nil, `--set apiVersion: apiVersion: unknown field "apiVersion"; expected "cluster", "leaderElection", ` +
			`"server", "logging", "reload", "featureGates" or "controllers"`},
		{"featureGates.Nonsense=true", nil, `--set featureGates.Nonsense: featureGates.Nonsense: unknown feature gate "Nonsense"`},
		{"server.tls.keyFile=-----BEGIN EC PRIVATE KEY-----", nil,
			"--set server.tls.keyFile: server.tls.keyFile: looks like the content of a PEM file, expected the file's path"},
	}
	for _, test := range tests {
		t.Run(test.arg, func(t *testing.T) {
			t.Parallel()
			layer, errs := s.DecodeSet(test.arg)
			if errs.Error() != test.errs {
				t.Errorf("errors\n%v\nwant\n%s", errs, test.errs)
			}
			if test.want != nil {
				if diff := cmp.Diff(test.want, layer.Values); diff != "" {
					t.Errorf("values (-want +have):\n%s", diff)
				}
			}
			for path, origin := range layer.Origins {
				if origin.Layer != "set" {
					t.Errorf("origin of %s is %+v", path, origin)
				}
			}
		})
	}
}

func TestBuildRefusesWhatDecodingWouldRefuse(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	at := schema.Origin{Layer: "file", Source: "file.yaml", Line: 7, Column: 3}
	tests := []struct {
		name   string
		values map[string]any
		path   string
		want   string
	}{
		{"unknown", map[string]any{"serve": map[string]any{}}, "serve", `file.yaml:7:3: serve: unknown field "serve"; did you mean "server"?`},
		{"type", map[string]any{"server": map[string]any{"port": "x"}}, "server.port",
			`file.yaml:7:3: server.port: expected a whole number of at least 0 and at most 65535, got the string "x"`},
		{"range", map[string]any{"server": map[string]any{"port": 70000}}, "server.port",
			"file.yaml:7:3: server.port: got 70000, expected at least 0 and at most 65535"},
		{"no mapping", map[string]any{"server": 3.5}, "server", "file.yaml:7:3: server: expected a mapping, got the number 3.5"},
		{"strange type", map[string]any{"server": map[string]any{"port": make(chan int)}}, "server.port", ""},
		{"other version", map[string]any{"apiVersion": "v2"}, "apiVersion",
			`file.yaml:7:3: apiVersion: got the string "v2", expected "` + schema.APIVersion + `"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			config, errs := s.Build(test.values, map[string]schema.Origin{test.path: at})
			if len(errs) == 0 || config != nil {
				t.Fatalf("accepted: %v", config)
			}
			if test.want != "" && errs.Error() != test.want {
				t.Errorf("errors\n%v\nwant\n%s", errs, test.want)
			}
		})
	}
	ints := map[string]any{"server": map[string]any{"port": 8443}, "cluster": map[string]any{"clusterCIDRs": []string{"10.0.0.0/8"}},
		"apiVersion": schema.APIVersion, "kind": schema.Kind}
	config, errs := s.Build(ints, nil)
	if len(errs) > 0 || config.Server.Port != 8443 || config.Cluster.ClusterCIDRs[0] != "10.0.0.0/8" {
		t.Errorf("Go's own types: %v, %v", config, errs)
	}
}

func TestSectionsStandBesideStartInterval(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	config := s.Default()
	data, err := yaml.Marshal(config.Controllers)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"deployment-controller:\n  enabled: true\n  workers: 5\n", "startInterval: 0s\n"} {
		if !strings.Contains("\n"+string(data), "\n"+want) {
			t.Errorf("YAML lacks %q:\n%s", want, data)
		}
	}
	var empty schema.Controllers
	if err := yaml.Unmarshal([]byte("startInterval: 1s\njob-controller: {workers: 9}\n"), &empty); err != nil {
		t.Fatal(err)
	}
	want := schema.Controllers{Sections: map[string]schema.Section{
		"job-controller": &schema.JobController{ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 9}}}}
	want.StartInterval.Duration = time.Second
	if diff := cmp.Diff(want, empty); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	for _, bad := range []string{"no-such-controller: {}", "job: {}", "job-controller: 5", "startInterval: x", "[]"} {
		if err := yaml.Unmarshal([]byte(bad), &schema.Controllers{}); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}
