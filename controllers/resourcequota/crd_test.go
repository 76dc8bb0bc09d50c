package resourcequota_test

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

var (
	definitions = apischema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	apiServices = apischema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// crd is a namespaced custom resource of version v1.
type crd struct{ plural, group string }

func (d crd) name() string { return d.plural + "." + d.group }

func (d crd) count() corev1.ResourceName { return corev1.ResourceName("count/" + d.name()) }

func (d crd) kind() string { return strings.ToUpper(d.plural[:1]) + d.plural[1:] }

func (d crd) resource() apischema.GroupVersionResource {
	return apischema.GroupVersionResource{Group: d.group, Version: "v1", Resource: d.plural}
}

func (w *world) define(d crd) {
	w.t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": d.name()},
		"spec": map[string]any{
			"group": d.group, "scope": "Namespaced",
			"names": map[string]any{"plural": d.plural, "singular": strings.ToLower(d.kind()), "kind": d.kind(), "listKind": d.kind() + "List"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	if _, err := w.dynamic.Resource(definitions).Create(w.t.Context(), definition, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	harness.Eventually(w.t, soon, "served "+d.name(), func(ctx context.Context) error {
		_, err := w.dynamic.Resource(d.resource()).List(ctx, metav1.ListOptions{})
		return err
	})
}

func (w *world) undefine(d crd) {
	w.t.Helper()
	if err := w.dynamic.Resource(definitions).Delete(w.t.Context(), d.name(), metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	harness.Eventually(w.t, soon, "end of "+d.name(), func(ctx context.Context) error {
		_, err := w.dynamic.Resource(definitions).Get(ctx, d.name(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

func (d crd) object(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": d.group + "/v1", "kind": d.kind(), "metadata": map[string]any{"name": name},
	}}
}

// custom object, as soon as quotas let it pass.
func (w *world) custom(d crd, name string) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "creation of "+name, func(ctx context.Context) error {
		_, err := w.dynamic.Resource(d.resource()).Namespace(w.ns).Create(ctx, d.object(name), metav1.CreateOptions{})
		return err
	})
}

func (w *world) deleteCustom(d crd, name string) {
	w.t.Helper()
	if err := w.dynamic.Resource(d.resource()).Namespace(w.ns).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func acceptance06(w *world) {
	monitors := w.summary().Monitors
	// The plural is that of a built-in resource; the group tells them apart.
	d := crd{plural: "services", group: "quota.example.com"}
	w.create("before", amounts{d.count(): "5", "services": "5"})
	w.used("before", amounts{"services": "0"})
	w.define(d)
	w.quota("at-once", amounts{d.count(): "5"})
	w.used("before", amounts{d.count(): "0"})
	w.ready()
	w.quota("after", amounts{d.count(): "5", "count/services": "5"})
	w.custom(d, "x")
	w.custom(d, "y")
	for _, name := range []string{"before", "at-once", "after"} {
		w.used(name, amounts{d.count(): "2"})
	}
	w.deleteCustom(d, "x")
	for _, name := range []string{"before", "at-once", "after"} {
		w.used(name, amounts{d.count(): "1"})
	}
	w.used("before", amounts{"services": "0"})
	w.used("after", amounts{"count/services": "0"})

	// The definition goes and comes back; its monitor does, too.
	w.undefine(d)
	harness.Eventually(w.t, soon, "fewer monitors", func(context.Context) error {
		if s := w.summary(); s.Monitors != monitors {
			return fmt.Errorf("%+v, want %d monitors", s, monitors)
		}
		return nil
	})
	w.define(d)
	harness.Eventually(w.t, soon, "monitor of the new definition", func(context.Context) error {
		if s := w.summary(); s.Monitors != monitors+1 || len(s.Unsynced) > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	w.custom(d, "z")
	w.used("after", amounts{d.count(): "1"})
	w.deleteCustom(d, "z")
	w.used("after", amounts{d.count(): "0"})
}

// brokenGroup makes discovery fail in part.
func brokenGroup(w *world) {
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1.quotadown.example.com"},
		"spec": map[string]any{
			"group": "quotadown.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"name": "nobody", "namespace": w.ns},
		},
	}}
	if _, err := w.dynamic.Resource(apiServices).Create(w.t.Context(), service, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := w.dynamic.Resource(apiServices).Delete(context.Background(), "v1.quotadown.example.com", metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
	down := apischema.GroupVersionResource{Group: "quotadown.example.com", Version: "v1", Resource: "downs"}
	harness.Eventually(w.t, soon, "503", func(ctx context.Context) error {
		_, err := w.dynamic.Resource(down).List(ctx, metav1.ListOptions{})
		if !apierrors.IsServiceUnavailable(err) {
			return fmt.Errorf("the API answers %w", err)
		}
		return nil
	})
	for _, restarted := range []bool{false, true} {
		if restarted {
			w.instance.Restart()
			w.ready()
		}
		name := fmt.Sprint("q-", restarted)
		w.quota(name, amounts{"pods": "5"})
		w.pod("p")
		w.used(name, amounts{"pods": "1"})
		w.deletePod("p")
		w.used(name, amounts{"pods": "0"})
	}
}
