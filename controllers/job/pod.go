package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

// maxGeneratedName is how long a name prefix may be; the API server cuts what
// is longer, and with it the index.
const maxGeneratedName = 58

// completionIndexEnv tells a container its index.
const completionIndexEnv = "JOB_COMPLETION_INDEX"

var jobKind = batchv1.SchemeGroupVersion.WithKind("Job")

// newPods returns a function that makes the pods of job. They share what is the
// same in all of them, and must not be changed.
func newPods(job *batchv1.Job, indexed, perIndex bool) (func(creation) *v1.Pod, error) {
	base, err := podcontrol.FromTemplate(&job.Spec.Template, job, metav1.NewControllerRef(job, jobKind))
	if err != nil {
		return nil, err
	}
	if !hasFinalizer(base) {
		base.Finalizers = append(base.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if indexed {
		addIndexEnv(base.Spec.InitContainers)
		addIndexEnv(base.Spec.Containers)
	}
	return func(c creation) *v1.Pod {
		pod := *base
		if !indexed {
			return &pod
		}
		index := strconv.Itoa(c.index)
		pod.GenerateName = indexedPrefix(job.Name, index)
		pod.Spec.Hostname = job.Name + "-" + index
		pod.Labels = with(base.Labels, batchv1.JobCompletionIndexAnnotation, index)
		pod.Annotations = with(base.Annotations, batchv1.JobCompletionIndexAnnotation, index)
		if perIndex {
			counted, ignored := failuresOf(job.Spec.PodFailurePolicy, c.replaces)
			pod.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(int(counted))
			if ignored > 0 {
				pod.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] = strconv.Itoa(int(ignored))
			}
		}
		return &pod
	}, nil
}

// failuresOf an index with that of its last pod, nil if it never had one.
func failuresOf(policy *batchv1.PodFailurePolicy, last *v1.Pod) (counted, ignored int32) {
	if last == nil {
		return 0, 0
	}
	counted, ignored = failureCount(last), ignoredFailureCount(last)
	if matchFailurePolicy(policy, last).counts() {
		return increased(counted), ignored
	}
	return counted, increased(ignored)
}

// indexedPrefix is what the pod's name begins with: the index is whole, the
// Job's name as much of it as there is room for.
func indexedPrefix(job, index string) string {
	suffix := "-" + index + "-"
	return job[:min(len(job), maxGeneratedName-len(suffix))] + suffix
}

func addIndexEnv(containers []v1.Container) {
	for i := range containers {
		if slices.ContainsFunc(containers[i].Env, func(e v1.EnvVar) bool { return e.Name == completionIndexEnv }) {
			continue
		}
		containers[i].Env = append(containers[i].Env, v1.EnvVar{
			Name: completionIndexEnv,
			ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{
				FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation),
			}},
		})
	}
}

func with(base map[string]string, key, value string) map[string]string {
	added := make(map[string]string, len(base)+3)
	maps.Copy(added, base)
	added[key] = value
	return added
}
