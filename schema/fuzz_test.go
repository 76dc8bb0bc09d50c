package schema

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// assertSound checks what holds for every configuration that was accepted: it
// comes out of YAML as it went in.
func assertSound(t *testing.T, s *Scheme, config *ControllerManagerConfiguration) {
	t.Helper()
	written, err := yaml.Marshal(config)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	again, err := buildFile(s, written)
	if err != nil {
		t.Fatalf("what was accepted is refused when written: %v\n%s", err, written)
	}
	if diff := cmp.Diff(config, again); diff != "" {
		t.Fatalf("(-first +second):\n%s\n%s", diff, written)
	}
}

func FuzzDecodeFile(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "../controller-manager.yaml", "testdata/peer-configz.json") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("apiVersion: " + APIVersion + "\nkind: " + Kind + "\ncontrollers:\n  job: &a {workers: 3}\n  cronjob: {<<: [*a]}\n"))
	s := NewScheme()
	f.Fuzz(func(t *testing.T, data []byte) {
		layer, errs := s.DecodeFile("file.yaml", data)
		base := s.DefaultLayer()
		merge(base.Values, layer.Values)
		config, more := s.Build(base.Values, MergeOrigins(base, layer))
		if len(errs) == 0 && len(more) == 0 {
			assertSound(t, s, config)
		}
	})
}

func FuzzDecodeSet(f *testing.F) {
	for _, arg := range []string{
		"", "=", "a", "server.port=8443", "cluster.clusterCIDRs=10.0.0.0/8,fd00::/8", "cluster.clusterCIDRs=[a, {b: c}]",
		"controllers.deployment={workers: 7}", "featureGates.AllAlpha=true", "reload.debounce=0", "cluster={name: &a x, kubeconfig: *a}",
		"controllers.garbagecollector.ignoredResources=[{group: apps, resource: deployments}]", "logging.modules.job=4", "cluster.name='x",
	} {
		f.Add(arg)
	}
	s := NewScheme()
	f.Fuzz(func(t *testing.T, arg string) {
		layer, errs := s.DecodeSet(arg)
		config, err := buildLayer(s, layer)
		if len(errs) == 0 && err == nil {
			assertSound(t, s, config)
		}
	})
}

func FuzzConvertManifest(f *testing.F) {
	data, err := os.ReadFile("testdata/kubeadm-manifest.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	for _, args := range []string{"--feature-gates=A=b", "-v=4", "--controllers=-x,*", "--kube-api-qps=0", "--cluster-cidr=,", "$(A)",
		"--tls-cipher-suites=x", "--pv-recycler-minimum-timeout-nfs=-5", "--terminated-pod-gc-threshold=-1", "--log_dir=a"} {
		f.Add([]byte("kind: Pod\nspec: {containers: [{name: kube-controller-manager, args: ['" + args + "']}]}\n"))
	}
	s := NewScheme()
	f.Fuzz(func(t *testing.T, data []byte) {
		conversion, err := s.ConvertManifest(data)
		if err != nil {
			return
		}
		config, err := buildFile(s, conversion.File)
		if err != nil {
			t.Fatalf("the converted file is refused: %v\n%s", err, conversion.File)
		}
		assertSound(t, s, config)
	})
}
