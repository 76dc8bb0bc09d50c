package garbagecollector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/garbagecollector"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// soon is how long the garbage collector may take.
const soon = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{Audit: true})) }

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets")
)

// world is a namespace with a garbage collector.
type world struct {
	t         *testing.T
	cp        *controlplane.ControlPlane
	namespace string
	engine    *harness.Engine
	instance  *harness.Instance
	metadata  metadata.Interface
	dynamic   dynamic.Interface
}

// newWorld with an engine of its own, on which nothing runs yet.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newClockWorld(t, nil)
}

// newClockWorld is a new world whose garbage collector has a clock; the real one if nil.
func newClockWorld(t *testing.T, c clock.WithTicker) *world {
	t.Helper()
	cp := controlplane.Shared(t)
	engine := harness.New(t, cp, harness.Options{DiscoveryInterval: time.Second, Clock: c})
	return inWorld(t, cp, engine, nil, engine.Namespace)
}

func inWorld(
	t *testing.T, cp *controlplane.ControlPlane, engine *harness.Engine, instance *harness.Instance, namespace string,
) *world {
	t.Helper()
	w := &world{t: t, cp: cp, namespace: namespace, engine: engine, instance: instance}
	var err error
	if w.metadata, err = metadata.NewForConfig(cp.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if w.dynamic, err = dynamic.NewForConfig(cp.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) start() {
	w.t.Helper()
	w.instance = w.engine.Start(garbagecollector.Descriptor(), nil)
}

// another world in a namespace of its own, with the same garbage collector.
func (w *world) another(t *testing.T) *world {
	t.Helper()
	return inWorld(t, w.cp, w.engine, w.instance, w.cp.Namespace(t))
}

// option changes an object before it is created.
type option func(*metav1.ObjectMeta)

func finalizer(name string) option {
	return func(m *metav1.ObjectMeta) { m.Finalizers = append(m.Finalizers, name) }
}

// ownedBy a reference; block is blockOwnerDeletion.
func ownedBy(ref metav1.OwnerReference, block *bool) option {
	return func(m *metav1.ObjectMeta) {
		ref.BlockOwnerDeletion = block
		m.OwnerReferences = append(m.OwnerReferences, ref)
	}
}

func (w *world) configMap(name string, options ...option) *corev1.ConfigMap {
	w.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	for _, o := range options {
		o(&object.ObjectMeta)
	}
	created, err := w.engine.Admin.CoreV1().ConfigMaps(w.namespace).Create(w.t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

func (w *world) secret(name string, options ...option) *corev1.Secret {
	w.t.Helper()
	object := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.namespace}}
	for _, o := range options {
		o(&object.ObjectMeta)
	}
	created, err := w.engine.Admin.CoreV1().Secrets(w.namespace).Create(w.t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

func configMapRef(c *corev1.ConfigMap) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: c.Name, UID: c.UID}
}

func (w *world) delete(gvr apischema.GroupVersionResource, name string, policy metav1.DeletionPropagation) {
	w.t.Helper()
	err := w.metadata.Resource(gvr).Namespace(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil {
		w.t.Fatal(err)
	}
}

// get an object; nil when it is gone.
func (w *world) get(ctx context.Context, gvr apischema.GroupVersionResource, name string) (*metav1.PartialObjectMetadata, error) {
	object, err := w.metadata.Resource(gvr).Namespace(w.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

func (w *world) gone(gvr apischema.GroupVersionResource, names ...string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, fmt.Sprintf("end of %s %v", gvr.Resource, names), func(ctx context.Context) error {
		for _, name := range names {
			object, err := w.get(ctx, gvr, name)
			if err != nil {
				return err
			}
			if object != nil {
				return fmt.Errorf("%s is there: owners %v, finalizers %v, deleted %v",
					name, object.OwnerReferences, object.Finalizers, object.DeletionTimestamp)
			}
		}
		return nil
	})
}

// stays fails the test unless an object is there, not being deleted, for a time.
func (w *world) stays(d time.Duration, gvr apischema.GroupVersionResource, name string) {
	w.t.Helper()
	harness.Throughout(w.t, d, "life of "+name, func(ctx context.Context) error {
		object, err := w.get(ctx, gvr, name)
		switch {
		case err != nil:
			return err
		case object == nil:
			return errors.New("it is gone")
		case object.DeletionTimestamp != nil:
			return errors.New("it is being deleted")
		}
		return nil
	})
}

// owners of an object come to be those of uids.
func (w *world) owners(gvr apischema.GroupVersionResource, name string, uids ...types.UID) {
	w.t.Helper()
	harness.Eventually(w.t, soon, fmt.Sprintf("owners %v of %s", uids, name), func(ctx context.Context) error {
		object, err := w.get(ctx, gvr, name)
		if err != nil || object == nil {
			return fmt.Errorf("it is gone: %w", err)
		}
		if object.DeletionTimestamp != nil {
			w.t.Fatalf("%s is being deleted", name)
		}
		if len(object.OwnerReferences) != len(uids) {
			return fmt.Errorf("owners %v", object.OwnerReferences)
		}
		for i, uid := range uids {
			if object.OwnerReferences[i].UID != uid {
				return fmt.Errorf("owners %v", object.OwnerReferences)
			}
		}
		return nil
	})
}

// release an object from its finalizers.
func (w *world) release(gvr apischema.GroupVersionResource, name, finalizer string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "release of "+name, func(ctx context.Context) error {
		object, err := w.get(ctx, gvr, name)
		if err != nil || object == nil {
			return err
		}
		for i, f := range object.Finalizers {
			if f == finalizer {
				patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/finalizers/%d","value":%q},{"op":"remove","path":"/metadata/finalizers/%d"}]`, i, f, i)
				_, err := w.metadata.Resource(gvr).Namespace(w.namespace).Patch(ctx, name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
		}
		return nil
	})
}

func yes() *bool { return ptr.To(true) }

// newSharedWorld has a garbage collector that sees the whole cluster. Its clock is the real one if nil.
func newSharedWorld(t *testing.T, cp *controlplane.ControlPlane, c clock.WithTicker) *world {
	t.Helper()
	engine := harness.New(t, cp, harness.Options{WholeCluster: true, DiscoveryInterval: time.Second, Clock: c})
	w := inWorld(t, cp, engine, nil, cp.Namespace(t))
	w.start()
	w.ready()
	return w
}

// summary is what the controller says of itself.
type summary struct {
	Nodes, Edges, Virtual, Monitors int
	Events                          int64
	Unsynced                        []string
	Ready, Complete                 bool
}

func (w *world) summary() summary {
	w.t.Helper()
	var s summary
	if err := json.Unmarshal([]byte(w.instance.Summary()), &s); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// ready waits until all that is served is monitored.
func (w *world) ready() {
	w.t.Helper()
	harness.Eventually(w.t, 2*soon, "complete graph", func(context.Context) error {
		if s := w.summary(); !s.Ready || !s.Complete {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// ownControlPlane for a test whose garbage collector, or whose resources, would
// be in the way of others.
func ownControlPlane(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cp
}
