package informers_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
)

// The detector ends the process, so the one who changes an object is a process
// of its own.
func TestMutationDetectorFindsWhoChangesObjects(t *testing.T) {
	t.Parallel()
	if os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") == "true" {
		changeStoredObject(t)
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	command.Env = append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=true")
	output, err := command.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "cache *v1.PartialObjectMetadata modified") {
		t.Errorf("error %v, output:\n%s", err, output)
	}
}

func changeStoredObject(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"},
	}
	pool := informers.NewPool(informers.Options{Metadata: metadatafake.NewSimpleMetadataClient(scheme, object)})
	lease := pool.Lease("controller")
	informer, err := lease.MetadataInformer(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	if err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { obj.(*metav1.PartialObjectMetadata).Labels = map[string]string{"changed": "yes"} },
	}); err != nil {
		t.Fatal(err)
	}
	lease.Start()
	select {} // until the detector panics
}
