package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
)

const (
	bigConfigMaps, configMapBytes = 20_000, 10_000
	bigSecrets                    = 5_000
	definitions, customs          = 300, 10
	// creators work side by side.
	creators = 16
	// afterwards is when nothing may be left of custom resources that are gone.
	afterwards = time.Minute
)

var background = metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}

// inParallel calls do for 0 to count-1.
func inParallel(b *testing.B, count int, do func(ctx context.Context, i int) error) {
	b.Helper()
	var next atomic.Int64
	var running sync.WaitGroup
	for range creators {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				if err := do(b.Context(), i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

func BenchmarkCascade(b *testing.B) {
	compareWork(b, workload{
		what:  fmt.Sprintf("deletion of %d Deployments × %d pods", rolloutDeployments, rolloutReplicas),
		nodes: 4,
		prepare: func(b *testing.B, client kubernetes.Interface, namespace string) {
			b.Helper()
			for i := range rolloutDeployments {
				create(b, client, namespace, fmt.Sprintf("web-%d", i), rolloutReplicas)
			}
			awaitAvailable(b, client, namespace, rolloutReplicas)
		},
		run: func(b *testing.B, client kubernetes.Interface, namespace string) time.Time {
			b.Helper()
			since := time.Now()
			if err := client.AppsV1().Deployments(namespace).DeleteCollection(b.Context(), background, metav1.ListOptions{}); err != nil {
				b.Fatal(err)
			}
			await(b, "all pods gone", func(ctx context.Context) (bool, error) {
				list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 1})
				return err == nil && len(list.Items) == 0, err
			})
			return since
		},
	})
}

// What objects cost whose content no controller needs.
func BenchmarkBigObjects(b *testing.B) {
	for b.Loop() {
		cp, client := controlPlane(b, controlplane.Options{Nodes: 1, Scheduler: true})
		namespace := cp.Namespace(b)
		content := strings.Repeat("x", configMapBytes)
		inParallel(b, bigConfigMaps, func(ctx context.Context, i int) error {
			_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("big-", i)}, Data: map[string]string{"content": content},
			}, metav1.CreateOptions{})
			return err
		})
		inParallel(b, bigSecrets, func(ctx context.Context, i int) error {
			_, err := client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("secret-", i)}, StringData: map[string]string{"token": content[:1000]},
			}, metav1.CreateOptions{})
			return err
		})
		probes := cp.Namespace(b)
		d := startDaemon(b, cp)
		awaitReconciling(b, client, probes, "daemon")
		ours := measureIdle(b, cp, d, func(e auditv1.Event) bool { return isDaemon(e.UserAgent) })
		stopAndForget(b, client, d)
		p := startPeer(b, cp)
		awaitReconciling(b, client, probes, "peer")
		theirs := measureIdle(b, cp, p, controlplane.FromPeer)
		results.add(fmt.Sprintf("%d ConfigMaps of %d kB and %d Secrets: resident memory", bigConfigMaps, configMapBytes/1000, bigSecrets),
			"MiB", float64(ours.resident)/(1<<20), float64(theirs.resident)/(1<<20))
	}
	results.write(b)
}

// customResource i of those that the benchmark defines.
func customResource(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: fmt.Sprintf("g%d.example.com", i%10), Version: "v1", Resource: fmt.Sprintf("things%d", i)}
}

func definition(i int) *unstructured.Unstructured {
	gvr, kind := customResource(i), fmt.Sprintf("Thing%d", i)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": gvr.Resource + "." + gvr.Group},
		"spec": map[string]any{
			"group": gvr.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": gvr.Resource, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
			"versions": []any{map[string]any{"name": gvr.Version, "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	}}
}

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// define makes the custom resources and their objects, and returns when the API
// server serves all of them.
func define(b *testing.B, cp *controlplane.ControlPlane, namespace string) (dynamic.Interface, time.Time) {
	b.Helper()
	config := cp.AdminConfig()
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	inParallel(b, definitions, func(ctx context.Context, i int) error {
		_, err := client.Resource(definitionResource).Create(ctx, definition(i), metav1.CreateOptions{})
		return err
	})
	inParallel(b, definitions, func(ctx context.Context, i int) error {
		gvr := customResource(i)
		for n := range customs {
			object := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": gvr.GroupVersion().String(), "kind": fmt.Sprintf("Thing%d", i), "metadata": map[string]any{"name": fmt.Sprint("thing-", n)},
			}}
			for {
				_, err := client.Resource(gvr).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
				if err == nil {
					break
				}
				if !apierrors.IsNotFound(err) {
					return err
				}
				select { // it is not served yet
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(workloadPoll):
				}
			}
		}
		return nil
	})
	served, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		b.Fatal(err)
	}
	await(b, "all custom resources in the API server's discovery", func(context.Context) (bool, error) {
		_, lists, err := served.Discovery().ServerGroupsAndResources()
		count := 0
		for _, list := range lists {
			if strings.HasSuffix(list.GroupVersion, ".example.com/v1") {
				for i := range list.APIResources {
					if !strings.Contains(list.APIResources[i].Name, "/") {
						count++
					}
				}
			}
		}
		return err == nil && count == definitions, err
	})
	return client, time.Now()
}

// cascades returns when the last custom resource's objects have dependents that go with them.
func cascades(b *testing.B, client dynamic.Interface, core kubernetes.Interface, namespace string) {
	b.Helper()
	last := client.Resource(customResource(definitions - 1)).Namespace(namespace)
	owner, err := last.Get(b.Context(), "thing-0", metav1.GetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	configMaps := core.CoreV1().ConfigMaps(namespace)
	if _, err := configMaps.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "child", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}}}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	if err := last.Delete(b.Context(), owner.GetName(), background); err != nil {
		b.Fatal(err)
	}
	await(b, "the dependent gone", func(ctx context.Context) (bool, error) {
		_, err := configMaps.Get(ctx, "child", metav1.GetOptions{})
		return apierrors.IsNotFound(err), err
	})
}

// held is what the daemon holds for custom resources.
type held struct{ goroutines, informers int }

func holds(ctx context.Context, d *daemon.Daemon) (held, error) {
	var informers struct {
		Informers []struct{} `json:"informers"`
	}
	if err := d.Get(ctx, "/debug/informers", &informers); err != nil {
		return held{}, err
	}
	body, err := d.Body(ctx, "/metrics")
	if err != nil {
		return held{}, err
	}
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			goroutines, err := strconv.Atoi(strings.TrimSpace(rest))
			return held{goroutines, len(informers.Informers)}, err
		}
	}
	return held{}, errors.New("the metrics have no go_goroutines")
}

// The time from when the API server shows all custom resources until the last
// one's objects cascade; and afterwards nothing is left of them.
func BenchmarkCustomResources(b *testing.B) {
	measured := func(b *testing.B, start func(*controlplane.ControlPlane) program, check func(b *testing.B, p program, vanish func())) (took time.Duration) {
		b.Helper()
		cp, core := controlPlane(b, controlplane.Options{Nodes: 1, Scheduler: true})
		p := start(cp)
		awaitReconciling(b, core, cp.Namespace(b), "probe")
		check(b, p, func() {
			namespace := cp.Namespace(b)
			client, shown := define(b, cp, namespace)
			cascades(b, client, core, namespace)
			took = time.Since(shown)
			inParallel(b, definitions, func(ctx context.Context, i int) error {
				return client.Resource(definitionResource).Delete(ctx, definition(i).GetName(), metav1.DeleteOptions{})
			})
			await(b, "all definitions gone", func(ctx context.Context) (bool, error) {
				list, err := client.Resource(definitionResource).List(ctx, metav1.ListOptions{})
				return err == nil && len(list.Items) == 0, err
			})
		})
		return took
	}
	for b.Loop() {
		ours := measured(b, func(cp *controlplane.ControlPlane) program { return startDaemon(b, cp) }, func(b *testing.B, p program, vanish func()) {
			b.Helper()
			d, ok := p.(*daemon.Daemon)
			if !ok {
				b.Fatalf("the program is a %T", p)
			}
			before, err := holds(b.Context(), d)
			if err != nil {
				b.Fatal(err)
			}
			vanish()
			within(b, afterwards, workloadPoll, "nothing left of custom resources", func(ctx context.Context) (bool, error) {
				after, err := holds(ctx, d)
				if err == nil && (after.informers > before.informers || after.goroutines > before.goroutines+10) {
					err = fmt.Errorf("%+v, before them %+v", after, before)
				}
				return err == nil, err
			})
		})
		theirs := measured(b, func(cp *controlplane.ControlPlane) program { return startPeer(b, cp) },
			func(_ *testing.B, _ program, vanish func()) { vanish() })
		results.add(fmt.Sprintf("%d custom resources: shown until their objects cascade", definitions), "s", ours.Seconds(), theirs.Seconds())
	}
	results.write(b)
}
