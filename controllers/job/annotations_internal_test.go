package job

import (
	"math"
	"strconv"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func annotated(annotations map[string]string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
}

func TestAnnotationsAreRead(t *testing.T) {
	for _, test := range []struct {
		text    string
		index   int
		isIndex bool
		count   int32
	}{
		{"0", 0, true, 0},
		{"4", 4, true, 4},
		{"5", 5, false, 5},
		{"", 0, false, 0},
		{"-1", -1, false, 0},
		{"1.5", 0, false, 0},
		{"2147483647", 2147483647, false, 2147483647},
		{"2147483648", 2147483647, false, 0},
		{"many", 0, false, 0},
	} {
		pod := annotated(map[string]string{
			batchv1.JobCompletionIndexAnnotation:          test.text,
			batchv1.JobIndexFailureCountAnnotation:        test.text,
			batchv1.JobIndexIgnoredFailureCountAnnotation: test.text,
		})
		if index, ok := completionIndex(pod, 5); ok != test.isIndex || ok && index != test.index {
			t.Errorf("%q: index %d, %t", test.text, index, ok)
		}
		if failureCount(pod) != test.count || ignoredFailureCount(pod) != test.count {
			t.Errorf("%q: counts %d, %d", test.text, failureCount(pod), ignoredFailureCount(pod))
		}
	}
	if _, ok := completionIndex(annotated(nil), 5); ok {
		t.Error("a pod without annotations has an index")
	}
	if increased(math.MaxInt32) != math.MaxInt32 || increased(7) != 8 {
		t.Error("counts overflow, or do not grow")
	}
}

func FuzzAnnotations(f *testing.F) {
	for _, seed := range []string{"", "0", "-1", "+1", "007", "2147483648", "1e3", "one"} {
		f.Add(seed, 10)
	}
	f.Fuzz(func(t *testing.T, text string, completions int) {
		pod := annotated(map[string]string{
			batchv1.JobCompletionIndexAnnotation:   text,
			batchv1.JobIndexFailureCountAnnotation: text,
		})
		if index, ok := completionIndex(pod, completions); ok && (index < 0 || index >= completions) {
			t.Errorf("%q is index %d of %d", text, index, completions)
		}
		counted, _ := failuresOf(nil, pod)
		if counted <= 0 || strconv.Itoa(int(counted)) == "" {
			t.Errorf("%q is followed by %d", text, counted)
		}
	})
}
