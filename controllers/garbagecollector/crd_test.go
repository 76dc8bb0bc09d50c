package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/monitors"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

var definitionResource = apischema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// crd is a namespaced custom resource definition.
type crd struct {
	w      *world
	group  string
	plural string
}

// define a custom resource with versions, the first of which is stored.
func (w *world) define(plural string, versions ...string) crd {
	w.t.Helper()
	d := crd{w: w, group: "gc-" + plural + ".example.com", plural: plural}
	d.create(versions...)
	return d
}

func (d crd) kind() string { return "K" + d.plural }

func (d crd) name() string { return d.plural + "." + d.group }

func (d crd) resource(version string) apischema.GroupVersionResource {
	return apischema.GroupVersionResource{Group: d.group, Version: version, Resource: d.plural}
}

func (d crd) create(versions ...string) {
	d.w.t.Helper()
	var served []any
	for i, version := range versions {
		served = append(served, map[string]any{
			"name": version, "served": true, "storage": i == 0,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		})
	}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": d.name()},
		"spec": map[string]any{
			"group": d.group, "scope": "Namespaced", "versions": served,
			"names": map[string]any{"plural": d.plural, "singular": strings.ToLower(d.kind()), "kind": d.kind(), "listKind": d.kind() + "List"},
		},
	}}
	if _, err := d.w.dynamic.Resource(definitionResource).Create(d.w.t.Context(), definition, metav1.CreateOptions{}); err != nil {
		d.w.t.Fatal(err)
	}
	harness.Eventually(d.w.t, soon, "served "+d.name(), func(ctx context.Context) error {
		_, err := d.w.metadata.Resource(d.resource(versions[0])).List(ctx, metav1.ListOptions{})
		return err
	})
}

func (d crd) patch(patch string) {
	d.w.t.Helper()
	_, err := d.w.dynamic.Resource(definitionResource).Patch(
		d.w.t.Context(), d.name(), "application/json-patch+json", []byte(patch), metav1.PatchOptions{})
	if err != nil {
		d.w.t.Fatal(err)
	}
}

func (d crd) delete() {
	d.w.t.Helper()
	if err := d.w.dynamic.Resource(definitionResource).Delete(d.w.t.Context(), d.name(), metav1.DeleteOptions{}); err != nil {
		d.w.t.Fatal(err)
	}
	harness.Eventually(d.w.t, soon, "end of "+d.name(), func(ctx context.Context) error {
		_, err := d.w.dynamic.Resource(definitionResource).Get(ctx, d.name(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// custom creates an object and returns a reference to it.
func (d crd) custom(version, name string, options ...option) metav1.OwnerReference {
	d.w.t.Helper()
	m := metav1.ObjectMeta{Name: name, Namespace: d.w.namespace}
	for _, o := range options {
		o(&m)
	}
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(d.group + "/" + version)
	object.SetKind(d.kind())
	object.SetName(m.Name)
	object.SetNamespace(m.Namespace)
	object.SetOwnerReferences(m.OwnerReferences)
	object.SetFinalizers(m.Finalizers)
	created, err := d.w.dynamic.Resource(d.resource(version)).Namespace(d.w.namespace).Create(d.w.t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		d.w.t.Fatal(err)
	}
	return metav1.OwnerReference{APIVersion: d.group + "/" + version, Kind: d.kind(), Name: name, UID: created.GetUID()}
}

// monitors comes to be n.
func (w *world) monitors(n int) {
	w.t.Helper()
	harness.Eventually(w.t, soon, fmt.Sprint(n, " monitors"), func(context.Context) error {
		if s := w.summary(); s.Monitors != n || len(s.Unsynced) > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func acceptance13(w *world) {
	others := w.summary().Monitors
	d := w.define("olds", "v1", "v1beta1")
	before := w.summary().Monitors
	owner := d.custom("v1beta1", "owner")
	w.configMap("child", ownedBy(owner, nil))
	w.stays(2*time.Second, configMaps, "child")

	// The preferred version goes, and the other one is monitored.
	d.patch(`[{"op":"replace","path":"/spec/versions/1/storage","value":true},{"op":"replace","path":"/spec/versions/0/storage","value":false},
		{"op":"replace","path":"/spec/versions/0/served","value":false}]`)
	old := w.configMap("old", ownedBy(metav1.OwnerReference{APIVersion: d.group + "/v1", Kind: d.kind(), Name: "owner", UID: owner.UID}, nil))
	harness.Eventually(w.t, soon, "monitor of the other version", func(context.Context) error {
		graph := w.serve("/graph?uid=" + string(owner.UID)).Body.String()
		if !strings.Contains(graph, `version="v1beta1"`) || strings.Contains(graph, `virtual="true"`) || !strings.Contains(graph, string(old.UID)) {
			return errors.New(graph)
		}
		return nil
	})
	w.stays(2*time.Second, configMaps, "child")
	w.stays(0, configMaps, "old")
	if after := w.summary().Monitors; after != before && after != before+1 {
		w.t.Errorf("%d monitors after the change of the version, %d before", after, before)
	}
	w.delete(d.resource("v1beta1"), "owner", metav1.DeletePropagationBackground)
	w.gone(configMaps, "child")
	d.delete()
	w.monitors(others)
}

func acceptance14And15(w *world) {
	before := w.summary().Monitors
	d := crd{w: w, group: "gc-things.example.com", plural: "things"}
	for range 2 {
		d.create("v1")
		owner := d.custom("v1", "owner")
		w.configMap("child", ownedBy(owner, nil))
		builtin := w.configMap("builtin")
		d.custom("v1", "custom-child", ownedBy(configMapRef(builtin), nil))
		w.delete(d.resource("v1"), "owner", metav1.DeletePropagationBackground)
		w.delete(configMaps, "builtin", metav1.DeletePropagationBackground)
		w.gone(configMaps, "child")
		w.gone(d.resource("v1"), "custom-child")
		w.monitors(before + 1)

		// Custom resources take no strategic merge patch.
		orphaning := w.configMap("orphaning")
		d.custom("v1", "orphan", ownedBy(configMapRef(orphaning), nil))
		w.delete(configMaps, "orphaning", metav1.DeletePropagationOrphan)
		w.gone(configMaps, "orphaning")
		w.owners(d.resource("v1"), "orphan")

		// The definition goes with an instance that owns something.
		w.configMap("left", ownedBy(d.custom("v1", "last"), nil))
		harness.Eventually(w.t, soon, "both in the graph", func(context.Context) error {
			if graph := w.serve("/graph").Body.String(); !strings.Contains(graph, "name=last") || !strings.Contains(graph, "name=left") {
				return errors.New(graph)
			}
			return nil
		})
		d.delete()
		w.gone(configMaps, "left")
		w.monitors(before)
	}
}

func TestAcceptance16_ABrokenConversionStopsNothingElse(t *testing.T) {
	t.Parallel()
	// It delays every garbage collector that starts meanwhile.
	clock := harness.NewClock(t, time.Now())
	w := newSharedWorld(t, ownControlPlane(t), clock)
	w.instance.Stop()
	d := w.define("brokens", "v1", "v2")
	d.custom("v1", "stored")
	// v2 is preferred and stored from now on; v1 cannot be converted to it.
	d.patch(`[{"op":"add","path":"/spec/conversion","value":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],
		"clientConfig":{"url":"https://127.0.0.1:1/convert"}}}},
		{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`)
	harness.Eventually(t, soon, "failing list", func(ctx context.Context) error {
		if _, err := w.metadata.Resource(d.resource("v2")).List(ctx, metav1.ListOptions{}); err == nil {
			return errors.New("it works")
		}
		return nil
	})
	owner, orphaning := w.configMap("owner"), w.configMap("orphaning")
	w.configMap("child", ownedBy(configMapRef(owner), nil))
	w.configMap("orphan", ownedBy(configMapRef(orphaning), nil))
	w.delete(configMaps, "owner", metav1.DeletePropagationBackground)
	w.delete(configMaps, "orphaning", metav1.DeletePropagationOrphan)
	began := clock.Now()
	w.instance.Start()
	pass := func(what, name string) {
		t.Helper()
		harness.Eventually(t, 2*soon, what, func(ctx context.Context) error {
			clock.Step(100 * time.Millisecond)
			if object, err := w.get(ctx, configMaps, name); err != nil || object != nil {
				return fmt.Errorf("%s is there: %w", name, err)
			}
			return nil
		})
	}
	pass("deletion", "child")
	if object, err := w.get(t.Context(), configMaps, "orphaning"); (err != nil || object == nil) && clock.Since(began) < monitors.SyncTimeout {
		t.Errorf("the owner is gone before all of its dependents can be known: %v", err)
	}
	pass("end of the owner", "orphaning")
	if took := clock.Since(began); took < monitors.SyncTimeout {
		t.Errorf("the owner went after %s", took)
	}
	w.owners(configMaps, "orphan")
	families, err := w.instance.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := 0.0
	for _, family := range families {
		if family.GetName() == "garbagecollector_controller_resources_sync_error_total" {
			counted = family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if counted < 1 {
		t.Errorf("%v sync errors were counted", counted)
	}
	w.instance.Stop()
	d.patch(`[{"op":"replace","path":"/spec/conversion","value":{"strategy":"None"}}]`)
	d.delete()
}

func aggregatedAPIDown(w *world) {
	others := w.summary().Monitors
	services := apischema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1.down.example.com"},
		"spec": map[string]any{
			"group": "down.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"name": "nobody", "namespace": w.namespace},
		},
	}}
	if _, err := w.dynamic.Resource(services).Create(w.t.Context(), service, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := w.dynamic.Resource(services).Delete(context.Background(), "v1.down.example.com", metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
	harness.Eventually(w.t, soon, "503", func(ctx context.Context) error {
		_, err := w.dynamic.Resource(apischema.GroupVersionResource{Group: "down.example.com", Version: "v1", Resource: "downs"}).List(ctx, metav1.ListOptions{})
		if !apierrors.IsServiceUnavailable(err) {
			return fmt.Errorf("the API answers %w", err)
		}
		return nil
	})
	down := metav1.OwnerReference{APIVersion: "down.example.com/v1", Kind: "Down", Name: "x", UID: "down"}
	d := w.define("ups", "v1")
	for _, restarted := range []bool{false, true} {
		if restarted {
			w.instance.Restart()
		}
		suffix := fmt.Sprint("-", restarted)
		// Its objects are not verifiable, so that what they own stays.
		w.configMap("kept"+suffix, ownedBy(down, nil))
		owner := d.custom("v1", "owner"+suffix)
		w.configMap("child"+suffix, ownedBy(owner, nil))
		foreground := w.configMap("foreground" + suffix)
		w.configMap("blocking"+suffix, ownedBy(configMapRef(foreground), yes()))
		w.delete(d.resource("v1"), "owner"+suffix, metav1.DeletePropagationBackground)
		w.delete(configMaps, "foreground"+suffix, metav1.DeletePropagationForeground)
		w.gone(configMaps, "child"+suffix, "foreground"+suffix, "blocking"+suffix)
		w.stays(2*time.Second, configMaps, "kept"+suffix)
	}
	d.delete()
	w.monitors(others)
}

func TestAResourceThatCannotBeListedDelaysOnlyWhatNeedsIt(t *testing.T) {
	t.Parallel()
	clock := harness.NewClock(t, time.Now())
	w := newClockWorld(t, clock)
	leases := apischema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	mend := w.engine.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Resource == leases && (r.Verb == "list" || r.Verb == "watch")
	}, 503, 0)
	owner, orphaning := w.configMap("owner"), w.configMap("orphaning")
	w.configMap("child", ownedBy(configMapRef(owner), nil))
	w.configMap("orphan", ownedBy(configMapRef(orphaning), nil))
	w.delete(configMaps, "owner", metav1.DeletePropagationBackground)
	w.delete(configMaps, "orphaning", metav1.DeletePropagationOrphan)
	w.start()
	// Longer than what needs no complete graph waits, and not as long as what needs one.
	clock.Step(monitors.SyncTimeout / 2)
	w.gone(configMaps, "child")
	if object, err := w.get(t.Context(), configMaps, "orphaning"); err != nil || object == nil {
		t.Errorf("the owner is gone before all of its dependents can be known: %v", err)
	}
	mend()
	w.gone(configMaps, "orphaning")
	w.owners(configMaps, "orphan")
}
