package namespace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/schema"
	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestAcceptance01_EverythingGoesWithItsNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ns := w.namespace("full")
	labels := map[string]string{"app": "a"}
	w.configMap(ns, "c")
	core := w.Admin.CoreV1()
	_, err := core.Secrets(ns).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	if err == nil {
		_, err = core.Services(ns).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
	}
	if err == nil {
		// A deletion without a policy would give it a finalizer that orphans.
		_, err = core.ReplicationControllers(ns).Create(t.Context(), &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Name: "r"},
			Spec:       corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](0), Selector: labels, Template: ptr.To(podTemplate(labels))},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.start(func(s *schema.NamespaceController) { s.DeletionGracePeriod.Duration = 0 })
	release := w.Proxy.HoldWatches(namespaces.GroupResource())
	defer release()
	w.delete(ns)
	if n, err := w.get(t.Context(), ns); err != nil || n == nil || n.Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("%+v, %v; want it Terminating", n, err)
	}
	release()
	w.gone(ns)

	again := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if _, err := core.Namespaces().Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"configmaps", "secrets", "services", "endpoints", "replicationcontrollers"} {
		list, err := w.metadata.Resource(corev1.SchemeGroupVersion.WithResource(name)).Namespace(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) > 0 {
			t.Errorf("%s in the new namespace: %v, %v", name, list, err)
		}
	}
}

func podTemplate(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}

// What is created late is found, since the namespace is swept again after its grace period.
func TestAcceptance02_NothingIsReleasedWithinTheGracePeriod(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	w.startDefault()
	ns := w.namespace("grace")
	w.configMap(ns, "early")
	w.delete(ns)
	w.emptied(ns, configMaps) // at once
	w.step(ns, 5*time.Second-time.Nanosecond)
	harness.Eventually(t, soon, "rest of the controller", func(context.Context) error { return w.resting() })
	if n := w.releases(ns); len(n) > 0 {
		t.Fatalf("released within the grace period: %v", n)
	}
	w.configMap(ns, "late")
	w.time.Step(time.Nanosecond)
	w.gone(ns)
	if releases := w.releases(ns); len(releases) != 1 {
		t.Errorf("%d releases, want 1: %v", len(releases), releases)
	}
	list, err := w.metadata.Resource(configMaps).Namespace(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Errorf("left behind: %v, %v", list.Items, err)
	}
}

func TestAcceptance03_ConditionsNameWhatFinalizersHold(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	w.startDefault()
	ns := w.namespace("held")
	labels := map[string]string{"app": "a"}
	_, err := w.Admin.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Finalizers: []string{"custom.io/finalizer"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(labels),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.delete(ns)
	w.emptied(ns, deployments)
	w.step(ns, 5*time.Second)
	w.says(ns, conditions{
		discovered, parsed, deleted,
		{corev1.ConditionTrue, "SomeResourcesRemain", "Some resources are remaining: deployments.apps has 1 resource instances"},
		{
			corev1.ConditionTrue, "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: custom.io/finalizer in 1 resource instances",
		},
	})
	harness.Eventually(t, soon, "rest of the controller", func(context.Context) error { return w.resting() })
	before := w.requests(ns, nil)
	w.time.Step(8 * time.Second)
	w.eventually("another look", func(context.Context) error {
		if len(w.requests(ns, nil)) == len(before) {
			return errors.New("no request")
		}
		return nil
	})
	// Only what is held is looked at: another sweep would change nothing.
	for _, r := range w.requests(ns, nil)[len(before):] {
		if r.Verb != "list" || r.Resource.Resource != "deployments" {
			t.Errorf("request that changes nothing: %+v", r)
		}
	}
	w.letGo(deployments, ns, "d")
	w.step(ns, 8*time.Second)
	w.gone(ns)
}

func TestAcceptance04_PodsGoBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	w.startDefault()
	ns := w.namespace("pods")
	w.pod(ns, "p", "", 30, "e2e.example.com/finalizer")
	w.configMap(ns, "c")
	w.delete(ns)
	w.emptied(ns, pods)
	w.step(ns, 5*time.Second)
	// The finding of a whole sweep.
	w.says(ns, conditions{
		discovered, parsed, deleted,
		{corev1.ConditionTrue, "SomeResourcesRemain", "Some resources are remaining: pods. has 1 resource instances"},
		{
			corev1.ConditionTrue, "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: e2e.example.com/finalizer in 1 resource instances",
		},
	})
	if err := w.lives(t.Context(), configMaps, ns, "c"); err != nil {
		t.Errorf("ConfigMap beside a pod: %v", err)
	}
	w.letGo(pods, ns, "p")
	w.step(ns, 5*time.Second)
	w.gone(ns)
}

func TestAcceptance05_PodsHaveTheirGracePeriod(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{30 * time.Second, 2 * time.Second} {
		t.Run(grace.String(), func(t *testing.T) {
			t.Parallel()
			w := newClockWorld(t)
			w.startDefault()
			ns := w.namespace("running")
			w.pod(ns, "p", "no-kubelet", int64(grace.Seconds()))
			w.configMap(ns, "c")
			w.time.SetTime(time.Now())
			w.delete(ns)
			w.emptied(ns, pods)
			pod, err := w.Admin.CoreV1().Pods(ns).Get(t.Context(), "p", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if late := w.untilPodsFail(ns).Sub(pod.DeletionTimestamp.Time); late < 0 || late > 15*time.Second {
				t.Errorf("failure %s after the end of the pod's grace period, want it soon after", late)
			}
			if err := w.lives(t.Context(), configMaps, ns, "c"); err != nil {
				t.Errorf("ConfigMap beside a pod: %v", err)
			}
			// The kubelet is done.
			err = w.Admin.CoreV1().Pods(ns).Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
			if err != nil {
				t.Fatal(err)
			}
			w.time.Step(15 * time.Second)
			w.gone(ns)
		})
	}
}

// untilPodsFail lets time pass until the namespace says that its pod should be
// gone, and returns when that is. The pod is looked at every 5 s meanwhile.
func (w *world) untilPodsFail(ns string) time.Time {
	w.t.Helper()
	waiting := conditions{
		discovered, parsed, deleted,
		{corev1.ConditionTrue, "SomeResourcesRemain", "Some resources are remaining: pods. has 1 resource instances"}, unheld,
	}
	failing := waiting
	failing[2] = verdict{
		corev1.ConditionTrue, "ContentDeletionFailed", "Failed to delete all resource types, 1 remaining: " +
			"unexpected items still remain in namespace: " + ns + " for gvr: /v1, Resource=pods",
	}
	from := w.time.Now()
	for {
		reads := w.step(ns, 5*time.Second)
		w.pass(ns, reads)
		var found conditions
		w.saysThat(ns, "pods that are left", func(c conditions) bool {
			found = c
			return w.resting() == nil && (c == waiting || c == failing)
		})
		if found == failing || w.time.Since(from) > 2*time.Minute {
			return w.time.Now()
		}
	}
}

// resting is nil when the controller waits for time to pass.
func (w *world) resting() error {
	if status := w.instance.Work(); status.Busy > 0 || status.Depth > 0 {
		return fmt.Errorf("%+v", status)
	}
	return nil
}

// step waits until the controller waits for time to pass, lets it pass, and
// returns how often it had looked at a namespace before.
func (w *world) step(ns string, d time.Duration) (reads int) {
	w.t.Helper()
	harness.Eventually(w.t, soon, "rest of the controller", func(context.Context) error { return w.resting() })
	reads = w.reads(ns)
	w.time.Step(d)
	return reads
}

func TestAcceptance06_AnAPIThatIsDownKeepsNamespaces(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, ownControlPlane(t), harness.Options{})
	w.start()
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1.down.example.com"},
		"spec": map[string]any{
			"group": "down.example.com", "version": "v1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": "default", "name": "nobody"},
		},
	}}
	if _, err := w.dynamic.Resource(apiServices).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := sync.OnceFunc(func() {
		if err := w.dynamic.Resource(apiServices).Delete(context.Background(), service.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(gone)
	harness.Eventually(t, soon, "group that cannot be discovered", func(context.Context) error {
		_, err := w.Admin.Discovery().ServerPreferredNamespacedResources()
		if err == nil {
			return errors.New("all can be discovered")
		}
		return nil
	})
	ns := w.namespace("down")
	w.configMap(ns, "c")
	w.delete(ns)
	w.emptied(ns, configMaps)
	w.saysThat(ns, "failed discovery", func(c conditions) bool {
		return c[0].status == corev1.ConditionTrue && c[0].reason == "DiscoveryFailed" &&
			strings.HasPrefix(c[0].message, "Discovery failed for some groups, 1 failing: ") &&
			strings.Contains(c[0].message, "down.example.com") && c[2] == deleted && c[3] == removed && c[4] == unheld
	})
	if n := w.releases(ns); len(n) > 0 {
		t.Errorf("released although not all resources are known: %v", n)
	}
	gone()
	w.gone(ns)
}

// definition of a custom resource.
func (w *world) define(plural string) apischema.GroupVersionResource {
	w.t.Helper()
	gvr := apischema.GroupVersionResource{Group: plural + "-" + w.label + ".example.com", Version: "v1", Resource: plural}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + gvr.Group},
		"spec": map[string]any{
			"group": gvr.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "singular": plural[:len(plural)-1], "kind": "Thing", "listKind": "ThingList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
	if _, err := w.dynamic.Resource(definitions).Create(w.t.Context(), definition, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	harness.Eventually(w.t, soon, "served "+definition.GetName(), func(ctx context.Context) error {
		if _, err := w.metadata.Resource(gvr).List(ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		lists, err := w.Admin.Discovery().ServerPreferredNamespacedResources()
		if err != nil {
			return err
		}
		for _, list := range lists {
			if list.GroupVersion == gvr.GroupVersion().String() {
				return nil
			}
		}
		return errors.New("not discovered")
	})
	return gvr
}

func (w *world) custom(ns string, gvr apischema.GroupVersionResource, name string) {
	w.t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gvr.GroupVersion().String(), "kind": "Thing", "metadata": map[string]any{"name": name},
	}}
	if _, err := w.dynamic.Resource(gvr).Namespace(ns).Create(w.t.Context(), object, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) undefine(gvr apischema.GroupVersionResource) error {
	return w.dynamic.Resource(definitions).Delete(context.Background(), gvr.Resource+"."+gvr.Group, metav1.DeleteOptions{})
}

// It is not parallel: a resource that comes and goes would be swept, and missed, in all namespaces.
func TestAcceptance07_CustomResourcesGoToo(t *testing.T) {
	w := newWorld(t)
	kept, vanishing := w.define("keepers"), w.define("vanishers")
	w.start()
	ns, other := w.namespace("custom"), w.namespace("other")
	w.custom(ns, kept, "a")
	w.custom(ns, vanishing, "a")
	w.custom(other, kept, "a")
	// The definition goes when its objects are about to be deleted.
	vanish := sync.OnceFunc(func() {
		if err := w.undefine(vanishing); err != nil {
			t.Error(err)
		}
	})
	defer w.Proxy.Before(func(r apiproxy.Request) {
		if r.Resource == vanishing.GroupResource() && r.Verb == "deletecollection" {
			vanish()
		}
	})()
	w.delete(ns)
	w.gone(ns)
	if err := w.lives(t.Context(), kept, other, "a"); err != nil {
		t.Errorf("object of another namespace: %v", err)
	}
	if err := w.undefine(kept); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, soon, "discovery without both", func(context.Context) error {
		lists, err := w.Admin.Discovery().ServerPreferredNamespacedResources()
		if err != nil {
			return err
		}
		for _, list := range lists {
			for _, gvr := range []apischema.GroupVersionResource{kept, vanishing} {
				if list.GroupVersion == gvr.GroupVersion().String() {
					return fmt.Errorf("%s is served", gvr)
				}
			}
		}
		return nil
	})
}

func TestAcceptance08_FinalizersOfOthersStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(s *schema.NamespaceController) { s.SyncPeriod.Duration = time.Second })
	ns := w.namespace("other", func(n *corev1.Namespace) {
		n.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes, "example.com/x"}
	})
	w.configMap(ns, "c")
	w.delete(ns)
	w.says(ns, conditions{discovered, parsed, deleted, removed, unheld})
	n, err := w.get(t.Context(), ns)
	if err != nil || n == nil || len(n.Spec.Finalizers) != 1 || n.Spec.Finalizers[0] != "example.com/x" {
		t.Fatalf("finalizers are %+v, %v", n, err)
	}
	written := len(w.writes(ns))
	reads := w.reads(ns)
	w.pass(ns, reads+1)
	if after := w.writes(ns); len(after) != written || len(w.releases(ns)) != 1 {
		t.Errorf("written again: %v", after)
	}
	w.finalize(ns)
	w.gone(ns)
}

func TestAcceptance09_ActiveNamespacesAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newClockWorld(t)
	w.start()
	active := w.namespace("active")
	w.configMap(active, "c")
	// One that is looked at in every resync.
	looked := w.namespace("looked", func(n *corev1.Namespace) {
		n.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes, "example.com/x"}
	})
	w.delete(looked)
	harness.Eventually(t, soon, "release", func(context.Context) error {
		w.time.Step(quick)
		if len(w.releases(looked)) == 0 {
			return errors.New("not released")
		}
		return nil
	})
	w.says(looked, conditions{discovered, parsed, deleted, removed, unheld})
	for range 2 {
		reads := w.step(looked, 5*time.Minute)
		w.pass(looked, reads)
	}
	if r := w.requests(active, nil); len(r) > 0 {
		t.Errorf("requests for an active namespace: %v", r)
	}
	w.finalize(looked)
}

func TestAcceptance10_DeletionsDuringAStopAreDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(s *schema.NamespaceController) { s.Workers = 1 })
	w.instance.Stop()
	first := w.deleteMany(20)
	w.instance.Start()
	w.gone(first...)

	w.instance.Resize(10)
	second := w.deleteMany(5)
	w.instance.Resize(1)
	harness.Eventually(t, soon, "some progress", func(ctx context.Context) error {
		for _, ns := range second {
			if n, err := w.get(ctx, ns); err == nil && n == nil {
				return nil
			}
		}
		return errors.New("all are there")
	})
	w.instance.Resize(10)
	w.gone(second...)
}

// deleteMany makes and deletes so many namespaces.
func (w *world) deleteMany(count int) []string {
	w.t.Helper()
	var names []string
	for range count {
		ns := w.namespace("many")
		w.configMap(ns, "c")
		w.delete(ns)
		names = append(names, ns)
	}
	return names
}

func TestAcceptance11_ANamespaceHeldByItsOwnFinalizersIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(func(s *schema.NamespaceController) { s.SyncPeriod.Duration = 100 * time.Millisecond })
	ns := w.namespace("held", func(n *corev1.Namespace) { n.Finalizers = []string{"example.com/x"} })
	w.delete(ns)
	w.says(ns, conditions{discovered, parsed, deleted, removed, unheld})
	n, err := w.get(t.Context(), ns)
	if err != nil || n == nil || len(n.Spec.Finalizers) > 0 || n.Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("%+v, %v; want it Terminating without finalizers in its spec", n, err)
	}
	before := len(w.requests(ns, nil))
	harness.Throughout(t, time.Second, "rest", func(context.Context) error {
		if after := w.requests(ns, nil); len(after) != before {
			return fmt.Errorf("%v", after[before:])
		}
		return nil
	})
	w.letGo(namespaces, "", ns)
	w.gone(ns)
}
