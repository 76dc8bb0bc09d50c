package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/daemon"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// workloads are several of each kind. Those of one kind have the same size.
type workloads struct {
	t         *testing.T
	client    kubernetes.Interface
	namespace string
}

const (
	ofEachKind  = 5
	replicas    = 4
	completions = 6
)

// Leaders are killed while all kinds of workloads are created, rolled out,
// scaled and deleted, and the standby goes on where they were: the end is as
// without it, and on the way no workload had more pods than it may.
func TestKilledLeadersAreSucceededInAllWorkloads(t *testing.T) {
	cp := controlplane.Shared(t)
	w := &workloads{t: t, client: kubernetes.NewForConfigOrDie(cp.AdminConfig()), namespace: cp.Namespace(t)}
	const lease = "e2e-succession"
	leader := contend(t, cp, daemon.Options{Name: "succession-a"}, lease, quick)
	leading(t, leader)
	standby := contend(t, cp, daemon.Options{Name: "succession-b"}, lease, quick)
	standingBy(t, standby)
	jobs := countCreates(t, cp, "jobs", w.namespace)
	census := w.follow()
	for _, phase := range []struct {
		name    string
		begin   func()
		settled func(context.Context) error
	}{
		{"creation", w.create, w.complete("1", replicas)},
		{"rollout", w.roll("2"), w.complete("2", replicas)},
		{"scaling", w.scale(replicas + 2), w.complete("2", replicas+2)},
		{"deletion", w.delete, w.gone},
	} {
		var changing sync.WaitGroup
		changing.Go(phase.begin)
		<-time.After(rand.N(1500 * time.Millisecond)) // any moment is right
		if err := leader.Kill(); err != nil {
			t.Fatal(err)
		}
		changing.Wait()
		leading(t, standby)
		if err := leader.Start(); err != nil {
			t.Fatal(err)
		}
		standingBy(t, leader)
		leader, standby = standby, leader
		eventually(t, late, phase.name, phase.settled)
	}
	pods := census()
	for app, seen := range pods {
		if most := mostPods(app); seen.most > most {
			t.Errorf("%s had %d pods at a time, want %d at most", app, seen.most, most)
		}
		if strings.HasPrefix(app, "job-") && len(seen.uids) != completions {
			t.Errorf("%s had %d pods, want %d", app, len(seen.uids), completions)
		}
	}
	created(t, "jobs", jobs, ofEachKind)
	if want := 6 * ofEachKind; len(pods) != want {
		t.Errorf("%d workloads had pods, want %d: %v", len(pods), want, slices.Sorted(maps.Keys(pods)))
	}
}

// mostPods that a workload may have at a time, those that are being deleted
// aside: a Deployment of six surges by two.
func mostPods(app string) int {
	kind, _, _ := strings.Cut(app, "-")
	switch kind {
	case "deployment":
		return replicas + 2 + 2
	case "daemonset":
		return 2 // as many as there are nodes
	case "job":
		return 2 // its parallelism
	default:
		return replicas + 2
	}
}

// seenPods are the pods of a workload.
type seenPods struct {
	alive map[types.UID]bool
	uids  map[types.UID]bool
	most  int
}

// follow counts the pods of each workload from now until the returned function is called.
func (w *workloads) follow() func() map[string]*seenPods {
	apps := map[string]*seenPods{}
	stop := harness.Follow(w.t, w.client.CoreV1().Pods(w.namespace), metav1.ListOptions{}, func(event watch.EventType, pod *corev1.Pod) {
		app := pod.Labels["app"]
		if apps[app] == nil {
			apps[app] = &seenPods{alive: map[types.UID]bool{}, uids: map[types.UID]bool{}}
		}
		seen := apps[app]
		seen.uids[pod.UID] = true
		if event == watch.Deleted || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
			delete(seen.alive, pod.UID)
		} else {
			seen.alive[pod.UID] = true
		}
		seen.most = max(seen.most, len(seen.alive))
	})
	return func() map[string]*seenPods {
		stop()
		return apps
	}
}

// each calls do for the name of every workload of a kind.
func each(kind string, do func(name string) error) error {
	for i := range ofEachKind {
		name := fmt.Sprintf("%s-%d", kind, i)
		if err := do(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (w *workloads) check(errs ...error) {
	for _, err := range errs {
		if err != nil {
			w.t.Error(err)
		}
	}
}

func (w *workloads) create() {
	ctx, apps := w.t.Context(), w.client.AppsV1()
	meta := func(name string) (metav1.ObjectMeta, *metav1.LabelSelector, corev1.PodTemplateSpec) {
		d := deployment(w.namespace, name, replicas)
		return d.ObjectMeta, d.Spec.Selector, d.Spec.Template
	}
	w.check(each("deployment", func(name string) error {
		_, err := apps.Deployments(w.namespace).Create(ctx, deployment(w.namespace, name, replicas), metav1.CreateOptions{})
		return err
	}), each("replicaset", func(name string) error {
		m, selector, template := meta(name)
		_, err := apps.ReplicaSets(w.namespace).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: m,
			Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](replicas), Selector: selector, Template: template}}, metav1.CreateOptions{})
		return err
	}), each("replicationcontroller", func(name string) error {
		m, _, template := meta(name)
		_, err := w.client.CoreV1().ReplicationControllers(w.namespace).Create(ctx, &corev1.ReplicationController{ObjectMeta: m,
			Spec: corev1.ReplicationControllerSpec{Replicas: ptr.To[int32](replicas), Template: &template}}, metav1.CreateOptions{})
		return err
	}), each("statefulset", func(name string) error {
		m, selector, template := meta(name)
		_, err := apps.StatefulSets(w.namespace).Create(ctx, &appsv1.StatefulSet{ObjectMeta: m,
			Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](replicas), Selector: selector, Template: template}}, metav1.CreateOptions{})
		return err
	}), each("daemonset", func(name string) error {
		m, selector, template := meta(name)
		_, err := apps.DaemonSets(w.namespace).Create(ctx, &appsv1.DaemonSet{ObjectMeta: m,
			Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, metav1.CreateOptions{})
		return err
	}), each("job", func(name string) error {
		m, _, template := meta(name)
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		_, err := w.client.BatchV1().Jobs(w.namespace).Create(ctx, &batchv1.Job{ObjectMeta: m,
			Spec: batchv1.JobSpec{Completions: ptr.To[int32](completions), Parallelism: ptr.To[int32](2), Template: template}}, metav1.CreateOptions{})
		return err
	}))
}

// patch changes all workloads of the kinds whose pods are replaced, or not, by a merge patch.
func (w *workloads) patch(kinds []string, patch string) {
	ctx := w.t.Context()
	for _, kind := range kinds {
		w.check(each(kind, func(name string) (err error) {
			switch kind {
			case "deployment":
				_, err = w.client.AppsV1().Deployments(w.namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			case "replicaset":
				_, err = w.client.AppsV1().ReplicaSets(w.namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			case "replicationcontroller":
				_, err = w.client.CoreV1().ReplicationControllers(w.namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			case "statefulset":
				_, err = w.client.AppsV1().StatefulSets(w.namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			case "daemonset":
				_, err = w.client.AppsV1().DaemonSets(w.namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
			}
			return err
		}))
	}
}

func (w *workloads) roll(tag string) func() {
	return func() {
		w.patch([]string{"deployment", "statefulset", "daemonset"},
			fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"example.com/app:%s"}]}}}}`, tag))
	}
}

func (w *workloads) scale(to int) func() {
	return func() {
		w.patch([]string{"deployment", "statefulset", "replicaset", "replicationcontroller"}, fmt.Sprintf(`{"spec":{"replicas":%d}}`, to))
	}
}

// complete checks that all workloads are what their specs ask for, with an image of tag.
func (w *workloads) complete(tag string, size int32) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, kind := range []func(context.Context, int32) error{w.deployments, w.replicaSets, w.statefulSets, w.daemonSets, w.jobs} {
			if err := kind(ctx, size); err != nil {
				return err
			}
		}
		pods, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			kind, _, _ := strings.Cut(pods.Items[i].Labels["app"], "-")
			rolled := kind == "deployment" || kind == "statefulset" || kind == "daemonset"
			if image := pods.Items[i].Spec.Containers[0].Image; rolled && image != "example.com/app:"+tag {
				return fmt.Errorf("%s has %s", pods.Items[i].Name, image)
			}
		}
		return nil
	}
}

func (w *workloads) deployments(ctx context.Context, size int32) error {
	return each("deployment", func(name string) error {
		d, err := w.client.AppsV1().Deployments(w.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (d.Status.ObservedGeneration != d.Generation || d.Status.Replicas != size ||
			d.Status.UpdatedReplicas != size || d.Status.AvailableReplicas != size) {
			err = fmt.Errorf("status %+v", d.Status)
		}
		return err
	})
}

func (w *workloads) replicaSets(ctx context.Context, size int32) error {
	if err := each("replicaset", func(name string) error {
		rs, err := w.client.AppsV1().ReplicaSets(w.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (rs.Status.ObservedGeneration != rs.Generation || rs.Status.Replicas != size || rs.Status.AvailableReplicas != size) {
			err = fmt.Errorf("status %+v", rs.Status)
		}
		return err
	}); err != nil {
		return err
	}
	return each("replicationcontroller", func(name string) error {
		rc, err := w.client.CoreV1().ReplicationControllers(w.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (rc.Status.ObservedGeneration != rc.Generation || rc.Status.Replicas != size || rc.Status.AvailableReplicas != size) {
			err = fmt.Errorf("status %+v", rc.Status)
		}
		return err
	})
}

func (w *workloads) statefulSets(ctx context.Context, size int32) error {
	return each("statefulset", func(name string) error {
		set, err := w.client.AppsV1().StatefulSets(w.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (set.Status.ObservedGeneration != set.Generation || set.Status.Replicas != size ||
			set.Status.UpdatedReplicas != size || set.Status.AvailableReplicas != size) {
			err = fmt.Errorf("status %+v", set.Status)
		}
		return err
	})
}

func (w *workloads) daemonSets(ctx context.Context, _ int32) error {
	return each("daemonset", func(name string) error {
		set, err := w.client.AppsV1().DaemonSets(w.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (set.Status.ObservedGeneration != set.Generation || set.Status.DesiredNumberScheduled == 0 ||
			set.Status.UpdatedNumberScheduled != set.Status.DesiredNumberScheduled || set.Status.NumberAvailable != set.Status.DesiredNumberScheduled) {
			err = fmt.Errorf("status %+v", set.Status)
		}
		return err
	})
}

func (w *workloads) jobs(ctx context.Context, _ int32) error {
	return each("job", func(name string) error {
		job, err := w.client.BatchV1().Jobs(w.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (job.Status.Succeeded != completions || job.Status.Failed != 0 || job.Status.CompletionTime == nil) {
			err = fmt.Errorf("status %+v", job.Status)
		}
		return err
	})
}

// delete lets the garbage collector delete what the workloads have made.
func (w *workloads) delete() {
	o := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	all, ctx := metav1.ListOptions{}, w.t.Context()
	w.check(
		w.client.AppsV1().Deployments(w.namespace).DeleteCollection(ctx, o, all),
		each("replicaset", func(name string) error { return w.client.AppsV1().ReplicaSets(w.namespace).Delete(ctx, name, o) }),
		w.client.CoreV1().ReplicationControllers(w.namespace).DeleteCollection(ctx, o, all),
		w.client.AppsV1().StatefulSets(w.namespace).DeleteCollection(ctx, o, all),
		w.client.AppsV1().DaemonSets(w.namespace).DeleteCollection(ctx, o, all),
		w.client.BatchV1().Jobs(w.namespace).DeleteCollection(ctx, o, all),
	)
}

func (w *workloads) gone(ctx context.Context) error {
	pods, err := w.client.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	replicaSets, err := w.client.AppsV1().ReplicaSets(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	revisions, err := w.client.AppsV1().ControllerRevisions(w.namespace).List(ctx, metav1.ListOptions{})
	if err == nil && len(pods.Items)+len(replicaSets.Items)+len(revisions.Items) > 0 {
		err = fmt.Errorf("%d pods, %d replica sets and %d revisions are there", len(pods.Items), len(replicaSets.Items), len(revisions.Items))
	}
	return err
}
