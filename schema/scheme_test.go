package schema_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// peerControllers are the controllers of kube-controller-manager 1.37, with the
// three cloud controllers of 1.25: name, alias, on by default, workers.
var peerControllers = []struct {
	name, alias string
	enabled     bool
	workers     int
}{
	{"bootstrap-signer-controller", "bootstrapsigner", false, 1},
	{"certificatesigningrequest-approving-controller", "csrapproving", true, 5},
	{"certificatesigningrequest-cleaner-controller", "csrcleaner", true, 1},
	{"certificatesigningrequest-signing-controller", "csrsigning", true, 5},
	{"cloud-node-lifecycle-controller", "cloud-node-lifecycle", false, 1},
	{"clusterrole-aggregation-controller", "clusterrole-aggregation", true, 5},
	{"cronjob-controller", "cronjob", true, 5},
	{"daemonset-controller", "daemonset", true, 2},
	{"deployment-controller", "deployment", true, 5},
	{"device-taint-eviction-controller", "", true, 8},
	{"disruption-controller", "disruption", true, 1},
	{"endpoints-controller", "endpoint", true, 5},
	{"endpointslice-controller", "endpointslice", true, 5},
	{"endpointslice-mirroring-controller", "endpointslicemirroring", true, 5},
	{"ephemeral-volume-controller", "ephemeral-volume", true, 5},
	{"garbage-collector-controller", "garbagecollector", true, 20},
	{"horizontal-pod-autoscaler-controller", "horizontalpodautoscaling", true, 5},
	{"job-controller", "job", true, 5},
	{"kube-apiserver-serving-clustertrustbundle-publisher-controller", "", true, 1},
	{"legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner", true, 1},
	{"namespace-controller", "namespace", true, 10},
	{"node-ipam-controller", "nodeipam", true, 30},
	{"node-lifecycle-controller", "nodelifecycle", true, 8},
	{"node-route-controller", "route", false, 1},
	{"persistentvolume-attach-detach-controller", "attachdetach", true, 1},
	{"persistentvolume-binder-controller", "persistentvolume-binder", true, 1},
	{"persistentvolume-expander-controller", "persistentvolume-expander", true, 10},
	{"persistentvolume-protection-controller", "pv-protection", true, 1},
	{"persistentvolumeclaim-protection-controller", "pvc-protection", true, 1},
	{"pod-garbage-collector-controller", "podgc", true, 1},
	{"podcertificaterequest-cleaner-controller", "", true, 1},
	{"podgroup-protection-controller", "", true, 1},
	{"replicaset-controller", "replicaset", true, 5},
	{"replicationcontroller-controller", "replicationcontroller", true, 5},
	{"resourceclaim-controller", "resource-claim-controller", true, 50},
	{"resourcepoolstatusrequest-controller", "", true, 1},
	{"resourcequota-controller", "resourcequota", true, 5},
	{"root-ca-certificate-publisher-controller", "root-ca-cert-publisher", true, 1},
	{"selinux-warning-controller", "", false, 1},
	{"service-cidr-controller", "", true, 5},
	{"service-lb-controller", "service", false, 1},
	{"serviceaccount-controller", "serviceaccount", true, 1},
	{"serviceaccount-token-controller", "serviceaccount-token", true, 5},
	{"statefulset-controller", "statefulset", true, 5},
	{"storage-version-migrator-controller", "svm", true, 5},
	{"storageversion-garbage-collector-controller", "storage-version-gc", true, 1},
	{"taint-eviction-controller", "", true, 8},
	{"token-cleaner-controller", "tokencleaner", false, 1},
	{"ttl-after-finished-controller", "ttl-after-finished", true, 5},
	{"ttl-controller", "ttl", true, 5},
	{"validatingadmissionpolicy-status-controller", "", true, 5},
	{"volumeattributesclass-protection-controller", "", true, 1},
}

func TestEveryControllerHasASection(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	config := s.Default()
	var have, want []string
	for _, section := range s.SectionTypes() {
		have = append(have, section.Name)
	}
	for _, controller := range peerControllers {
		want = append(want, controller.name)
		section, ok := s.Resolve(controller.name)
		if !ok || section.Name != controller.name {
			t.Errorf("Resolve(%q) = %q, %t", controller.name, section.Name, ok)
			continue
		}
		if controller.alias != "" {
			if byAlias, ok := s.Resolve(controller.alias); !ok || byAlias.Name != controller.name {
				t.Errorf("Resolve(%q) = %q, %t, want %q", controller.alias, byAlias.Name, ok, controller.name)
			}
		} else if len(section.Aliases) > 0 {
			t.Errorf("%s has aliases %v, want none", section.Name, section.Aliases)
		}
		common := config.Controllers.Sections[controller.name].Base()
		if common.Enabled != controller.enabled || common.Workers != controller.workers {
			t.Errorf("%s: enabled %t, workers %d, want %t, %d",
				controller.name, common.Enabled, common.Workers, controller.enabled, controller.workers)
		}
	}
	if !slices.IsSorted(have) {
		t.Errorf("SectionTypes is not sorted: %v", have)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("sections (-want +have):\n%s", diff)
	}
	if _, ok := s.Resolve("no-such-controller"); ok {
		t.Error("Resolve finds a controller that does not exist")
	}
}

func TestDefaultsAndCopiesShareNothing(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	original := s.Default()
	original.Controllers.Sections["job-controller"].Base().Client = &schema.ClientLimits{QPS: 1, Burst: 1}
	before := original.DeepCopy()
	changed := original.DeepCopy()
	if diff := cmp.Diff(original, changed); diff != "" {
		t.Fatalf("copy differs (-original +copy):\n%s", diff)
	}
	changed.Cluster.ClusterCIDRs = append(changed.Cluster.ClusterCIDRs, "10.0.0.0/8")
	changed.Server.Authorization.AlwaysAllowPaths[0] = "/changed"
	changed.FeatureGates["AllAlpha"] = true
	changed.Logging.Modules["client-go"] = 3
	changed.Controllers.Sections["deployment-controller"].Base().Workers = 50
	changed.Controllers.Sections["job-controller"].Base().Client.QPS = 9
	ignored := changed.Controllers.Sections["garbage-collector-controller"].(*schema.GarbageCollectorController).IgnoredResources
	ignored[0].Resource = "changed"
	delete(changed.Controllers.Sections, "ttl-controller")
	if diff := cmp.Diff(before, original); diff != "" {
		t.Errorf("a change of the copy changed the original (-want +have):\n%s", diff)
	}
	if diff := cmp.Diff(schema.NewScheme().Default(), s.Default()); diff != "" {
		t.Errorf("a change of one default changed the next (-want +have):\n%s", diff)
	}
	var none *schema.ControllerManagerConfiguration
	if none.DeepCopy() != nil {
		t.Error("copy of nil is not nil")
	}
}

// customController stands for one that a program embedding the engine brings along.
type customController struct {
	schema.ControllerSettings `json:",inline"`
	Greeting                  string `json:"greeting" check:"oneof=hello|good morning"`
	Forbidden                 int    `json:"forbidden" check:"min=0,max=5"`
}

func (c *customController) Validate(config *schema.ControllerManagerConfiguration, report func(string, ...string)) {
	if c.Forbidden == 3 {
		report("three is right out", "forbidden", "/cluster.name")
	}
}

func customSection() schema.SectionType {
	return schema.SectionType{
		Name:    "greeting-controller",
		Aliases: []string{"greeting"},
		New: func() schema.Section {
			return &customController{ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 2}, Greeting: "hello"}
		},
	}
}

func TestExtraSection(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme(customSection())
	file := func(section string) []byte {
		return []byte("apiVersion: " + schema.APIVersion + "\nkind: " + schema.Kind + "\ncontrollers:\n  greeting: " + section + "\n")
	}
	config, errs := load(t, s, "file.yaml", file("{greeting: good morning, workers: 4}"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := &customController{ControllerSettings: schema.ControllerSettings{Enabled: true, Workers: 4}, Greeting: "good morning"}
	if diff := cmp.Diff(want, config.Controllers.Sections["greeting-controller"]); diff != "" {
		t.Errorf("section (-want +have):\n%s", diff)
	}
	for _, test := range []struct{ section, want string }{
		{"{greeting: hallo}", `file.yaml:4:24: controllers.greeting-controller.greeting: got "hallo", expected "hello" or "good morning"; did you mean "hello"?`},
		{"{forbidden: 3}", `file.yaml:4:25: controllers.greeting-controller.forbidden: three is right out`},
	} {
		if _, errs := load(t, s, "file.yaml", file(test.section)); errs.Error() != test.want {
			t.Errorf("%s: errors\n%s\nwant\n%s", test.section, errs, test.want)
		}
	}
	if _, errs := s.DecodeEnv([]string{"WHEELHOUSE_CONTROLLERS_GREETING_CONTROLLER_FORBIDDEN=1"}); len(errs) > 0 {
		t.Errorf("environment: %v", errs)
	}
}

func TestNewSchemeRefusesSharedNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"deployment-controller", "deployment", "Upper-Case", "with.dot", ""} {
		section := customSection()
		section.Name = name
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a section called %q was accepted", name)
				}
			}()
			schema.NewScheme(section)
		}()
	}
}

func TestFeatureEnabled(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		gates map[string]bool
		gate  string
		want  bool
	}{
		{"beta gate is on by default", nil, "WatchListClient", true},
		{"beta gate is off by default", nil, "GenericWorkload", false},
		{"alpha gate is off by default", nil, "StorageVersionAPI", false},
		{"set", map[string]bool{"StorageVersionAPI": true}, "StorageVersionAPI", true},
		{"all alpha", map[string]bool{"AllAlpha": true}, "StorageVersionAPI", true},
		{"all alpha leaves beta alone", map[string]bool{"AllAlpha": true}, "GenericWorkload", false},
		{"all beta", map[string]bool{"AllBeta": true}, "GenericWorkload", true},
		{"all beta off", map[string]bool{"AllBeta": false}, "WatchListClient", false},
		{"the gate itself outweighs its group", map[string]bool{"AllBeta": false, "WatchListClient": true}, "WatchListClient", true},
		{"stable gate can be turned off", map[string]bool{"ClusterTrustBundle": false}, "ClusterTrustBundle", false},
		{"unknown", nil, "NoSuchGate", false},
		{"the group itself", map[string]bool{"AllAlpha": true}, "AllAlpha", true},
	}
	for _, test := range tests {
		config := &schema.ControllerManagerConfiguration{FeatureGates: test.gates}
		if have := schema.FeatureEnabled(config, test.gate); have != test.want {
			t.Errorf("%s: %s is %t, want %t", test.name, test.gate, have, test.want)
		}
	}
	if !slices.IsSortedFunc(schema.FeatureGates(), func(a, b schema.FeatureGate) int {
		return slices.Compare([]byte(a.Name), []byte(b.Name))
	}) {
		t.Error("gates are not sorted")
	}
}
