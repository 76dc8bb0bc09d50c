package schema_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

func compile(t *testing.T, s *schema.Scheme) *jsonschema.Schema {
	t.Helper()
	text, err := s.JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// validate checks a YAML text by the JSON Schema.
func validate(t *testing.T, compiled *jsonschema.Schema, text []byte) error {
	t.Helper()
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Validate(document)
}

func TestJSONSchemaAcceptsTheFileOfDefaults(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../controller-manager.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(t, compile(t, schema.NewScheme()), data); err != nil {
		t.Error(err)
	}
}

// What concerns single values is judged alike by the JSON Schema and by DecodeFile.
func TestJSONSchemaAgreesWithDecoding(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	compiled := compile(t, s)
	for _, test := range []struct {
		body string
		good bool
	}{
		{"", true},
		{"cluster:\n", true},
		{"controllers: {deployment: {workers: 7}}\n", true},
		{"controllers: {deployment-controller: {client: {qps: 1, burst: 2}}}\n", true},
		{"reload: {pollInterval: 0}\n", true},
		{"reload: {pollInterval: 1h}\n", true},
		{"reload: {debounce: .5s}\n", true},
		{"featureGates: {AllAlpha: true, JobManagedBy: true}\n", true},
		{"logging: {modules: {deployment: 4, client-go: 2}}\n", true},
		{"server: {bindAddress: '::1', authorization: {alwaysAllowPaths: [/a, /b*]}}\n", true},
		{"cluster: {clusterCIDRs: [10.0.0.0/16, 'fd00::/48']}\n", true},
		{"controllers: {garbagecollector: {ignoredResources: [{group: '', resource: events}]}}\n", true},
		{"clusters: {}\n", false},
		{"controllers: {deployment: {wokers: 7}}\n", false},
		{"controllers: {deployment: {workers: 0}}\n", false},
		{"controllers: {endpointslice: {workers: 51}}\n", false},
		{"controllers: {job: {workers: 2.5}}\n", false},
		{"controllers: {no-such-controller: {}}\n", false},
		{"reload: {pollInterval: 10}\n", false},
		{"reload: {pollInterval: 1d}\n", false},
		{"reload: {pollInterval: -1s}\n", false},
		{"server: {port: 65536}\n", false},
		{"server: {port: '443'}\n", false},
		{"server: {port: null}\n", false},
		{"server: {bindAddress: localhost}\n", false},
		{"server: {tls: {minVersion: VersionTLS10}}\n", false},
		{"server: {tls: {cipherSuites: [TLS_NOT_A_SUITE]}}\n", false},
		{"server: {authorization: {alwaysAllowPaths: [healthz]}}\n", false},
		{"leaderElection: {standby: hot}\n", false},
		{"leaderElection: {resourceNamespace: Kube_System}\n", false},
		{"cluster: {name: ''}\n", false},
		{"cluster: {clusterCIDRs: [a, b, c]}\n", false},
		{"featureGates: {NoSuchGate: true}\n", false},
		{"logging: {modules: {nothing: 1}}\n", false},
		{"controllers: {garbagecollector: {ignoredResources: [{group: apps}]}}\n", false},
	} {
		file := []byte(typeMeta + test.body)
		_, errs := s.DecodeFile("file.yaml", file)
		err := validate(t, compiled, file)
		if (len(errs) == 0) != test.good || (err == nil) != test.good {
			t.Errorf("%q: decoding says %v, the JSON Schema %v, want good %t", test.body, errs, err, test.good)
		}
	}
	// A locked gate is a matter of Build.
	if err := validate(t, compiled, []byte(typeMeta+"featureGates: {JobManagedBy: false}\n")); err == nil {
		t.Error("the JSON Schema lets a locked gate be turned off")
	}
}

func TestJSONSchemaOfExtraSections(t *testing.T) {
	t.Parallel()
	compiled := compile(t, schema.NewScheme(customSection()))
	if err := validate(t, compiled, []byte(typeMeta+"controllers: {greeting: {greeting: good morning}}\n")); err != nil {
		t.Error(err)
	}
	if err := validate(t, compiled, []byte(typeMeta+"controllers: {greeting: {greeting: hallo}}\n")); err == nil {
		t.Error("a greeting that is not offered was accepted")
	}
}

func TestEveryPropertyIsDescribed(t *testing.T) {
	t.Parallel()
	text, err := schema.NewScheme().JSONSchema()
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, object map[string]any)
	walk = func(path string, object map[string]any) {
		properties, _ := object["properties"].(map[string]any)
		for name, value := range properties {
			property := value.(map[string]any)
			at := path + "." + name
			_, constant := property["const"]
			if text, _ := property["description"].(string); text == "" && !constant && path != ".logging.modules" {
				t.Errorf("%s has no description", at)
			}
			walk(at, property)
		}
	}
	walk("", document)
}
