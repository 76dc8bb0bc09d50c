package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	jobs, completions = 100, 20
	rolloutNodes      = 50
	rollouts          = 5
	cronJobs          = 500
	workloadWithin    = 10 * time.Minute
	workloadPoll      = 100 * time.Millisecond
)

func podTemplate(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app:1"}}},
	}
}

// once is the template of pods that succeed as soon as they run.
func once() corev1.PodTemplateSpec {
	template := podTemplate(nil)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	template.Spec.Containers[0].Command = []string{"sh", "-c", "exit 0"}
	return template
}

func await(b *testing.B, what string, condition func(context.Context) (bool, error)) {
	b.Helper()
	within(b, workloadWithin, workloadPoll, what, condition)
}

// compareWork measures w on the daemon and on a peer without limits.
func compareWork(b *testing.B, w workload) {
	b.Helper()
	ours, theirs := inTurn(
		func() requests { return measureDaemon(b, w) },
		func() requests { return measurePeer(b, "peer", w, withoutLimits...) },
	)
	compare(w.what+"; peer without limits", ours, theirs)
	results.write(b)
}

// rolloutsOf gives all pods a new image, several times one after the other, and
// returns since when. rolledOut waits until none is left with the one before.
func rolloutsOf(b *testing.B, patch func(context.Context, []byte) error, rolledOut func()) time.Time {
	b.Helper()
	since := time.Now()
	for i := range rollouts {
		image := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"example.com/app:%d"}]}}}}`, i+2)
		if err := patch(b.Context(), []byte(image)); err != nil {
			b.Fatal(err)
		}
		rolledOut()
	}
	return since
}

func BenchmarkJobs(b *testing.B) {
	compareWork(b, workload{
		what:  fmt.Sprintf("%d Jobs × %d completions", jobs, completions),
		nodes: 8,
		run: func(b *testing.B, client kubernetes.Interface, namespace string) time.Time {
			b.Helper()
			since := time.Now()
			for i := range jobs {
				_, err := client.BatchV1().Jobs(namespace).Create(b.Context(), &batchv1.Job{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("job-%d", i)},
					Spec:       batchv1.JobSpec{Completions: ptr.To[int32](completions), Parallelism: ptr.To[int32](completions), Template: once()},
				}, metav1.CreateOptions{})
				if err != nil {
					b.Fatal(err)
				}
			}
			await(b, "all Jobs complete", func(ctx context.Context) (bool, error) {
				list, err := client.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
				if err != nil {
					return false, err
				}
				for i := range list.Items {
					if s := &list.Items[i].Status; s.CompletionTime == nil || s.Succeeded != completions {
						return false, nil
					}
				}
				return true, nil
			})
			return since
		},
	})
}

func BenchmarkStatefulSetRollout(b *testing.B) {
	updated := func(b *testing.B, client kubernetes.Interface, namespace string) {
		b.Helper()
		await(b, "the StatefulSet rolled out", func(ctx context.Context) (bool, error) {
			set, err := client.AppsV1().StatefulSets(namespace).Get(ctx, "db", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			s := &set.Status
			return s.ObservedGeneration == set.Generation && s.UpdatedReplicas == rolloutNodes && s.AvailableReplicas == rolloutNodes &&
				s.CurrentRevision == s.UpdateRevision, nil
		})
	}
	compareWork(b, workload{
		what:  fmt.Sprintf("%d rollouts of a StatefulSet of %d pods", rollouts, rolloutNodes),
		nodes: rolloutNodes,
		prepare: func(b *testing.B, client kubernetes.Interface, namespace string) {
			b.Helper()
			labels := map[string]string{"app": "db"}
			_, err := client.AppsV1().StatefulSets(namespace).Create(b.Context(), &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Name: "db"},
				Spec: appsv1.StatefulSetSpec{
					Replicas: ptr.To[int32](rolloutNodes),
					Selector: &metav1.LabelSelector{MatchLabels: labels},
					Template: podTemplate(labels),
				},
			}, metav1.CreateOptions{})
			if err != nil {
				b.Fatal(err)
			}
			updated(b, client, namespace)
		},
		run: func(b *testing.B, client kubernetes.Interface, namespace string) time.Time {
			b.Helper()
			return rolloutsOf(b, func(ctx context.Context, image []byte) error {
				_, err := client.AppsV1().StatefulSets(namespace).Patch(ctx, "db", types.StrategicMergePatchType, image, metav1.PatchOptions{})
				return err
			}, func() { updated(b, client, namespace) })
		},
	})
}

func BenchmarkDaemonSetRollout(b *testing.B) {
	updated := func(b *testing.B, client kubernetes.Interface, namespace string) {
		b.Helper()
		await(b, "the DaemonSet rolled out", func(ctx context.Context) (bool, error) {
			set, err := client.AppsV1().DaemonSets(namespace).Get(ctx, "agent", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			s := &set.Status
			return s.ObservedGeneration == set.Generation && s.UpdatedNumberScheduled == rolloutNodes && s.NumberAvailable == rolloutNodes, nil
		})
	}
	compareWork(b, workload{
		what:  fmt.Sprintf("%d rollouts of a DaemonSet on %d nodes", rollouts, rolloutNodes),
		nodes: rolloutNodes,
		prepare: func(b *testing.B, client kubernetes.Interface, namespace string) {
			b.Helper()
			labels := map[string]string{"app": "agent"}
			_, err := client.AppsV1().DaemonSets(namespace).Create(b.Context(), &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Name: "agent"},
				Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: podTemplate(labels)},
			}, metav1.CreateOptions{})
			if err != nil {
				b.Fatal(err)
			}
			updated(b, client, namespace)
		},
		run: func(b *testing.B, client kubernetes.Interface, namespace string) time.Time {
			b.Helper()
			return rolloutsOf(b, func(ctx context.Context, image []byte) error {
				_, err := client.AppsV1().DaemonSets(namespace).Patch(ctx, "agent", types.StrategicMergePatchType, image, metav1.PatchOptions{})
				return err
			}, func() { updated(b, client, namespace) })
		},
	})
}

// The time runs from the minute in which all are due.
func BenchmarkCronJobs(b *testing.B) {
	compareWork(b, workload{
		what:  fmt.Sprintf("%d CronJobs due in the same minute", cronJobs),
		nodes: 8,
		run: func(b *testing.B, client kubernetes.Interface, namespace string) time.Time {
			b.Helper()
			// A minute from now at the least, which is enough to create them.
			due := time.Now().UTC().Add(time.Minute).Truncate(time.Minute).Add(time.Minute)
			for i := range cronJobs {
				_, err := client.BatchV1().CronJobs(namespace).Create(b.Context(), &batchv1.CronJob{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cron-%d", i)},
					Spec: batchv1.CronJobSpec{
						Schedule:    fmt.Sprintf("%d %d * * *", due.Minute(), due.Hour()),
						TimeZone:    ptr.To("Etc/UTC"),
						JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once()}},
					},
				}, metav1.CreateOptions{})
				if err != nil {
					b.Fatal(err)
				}
			}
			await(b, "all CronJobs have run", func(ctx context.Context) (bool, error) {
				list, err := client.BatchV1().CronJobs(namespace).List(ctx, metav1.ListOptions{})
				if err != nil {
					return false, err
				}
				for i := range list.Items {
					if s := &list.Items[i].Status; s.LastSuccessfulTime == nil || len(s.Active) > 0 {
						return false, nil
					}
				}
				return true, nil
			})
			return due
		},
	})
}
