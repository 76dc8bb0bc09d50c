package templatehash_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/templatehash"
)

func web() *v1.PodTemplateSpec {
	return &v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{
				Name: "c", Image: "nginx:1.27",
				TerminationMessagePath:   v1.TerminationMessagePathDefault,
				TerminationMessagePolicy: v1.TerminationMessageReadFile,
				ImagePullPolicy:          v1.PullIfNotPresent,
			}},
			RestartPolicy:                 v1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: ptr.To[int64](30),
			DNSPolicy:                     v1.DNSClusterFirst,
			SchedulerName:                 v1.DefaultSchedulerName,
			SecurityContext:               &v1.PodSecurityContext{},
		},
	}
}

// The vectors are names that kube-controller-manager 1.37 gives; taking over
// its Deployments must find their ReplicaSets by name. They hold for the
// version of k8s.io/api in go.mod.
func TestCompute(t *testing.T) {
	for _, test := range []struct {
		name      string
		template  *v1.PodTemplateSpec
		collision *int32
		want      string
	}{
		{"empty", &v1.PodTemplateSpec{}, nil, "54f4c57dcb"},
		{"empty after a collision", &v1.PodTemplateSpec{}, ptr.To[int32](1), "6554565b97"},
		{"web", web(), nil, "758c848bc7"},
		{"web, count zero", web(), ptr.To[int32](0), "6f99864d77"},
		{"web, count one", web(), ptr.To[int32](1), "57ddc9d844"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := templatehash.Compute(test.template, test.collision); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
