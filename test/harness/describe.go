package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
)

// describedRequests is how many requests a failed test shows.
const describedRequests = 40

// describe logs what the engine was doing when its test failed: the last
// requests, those without an answer, what waits in queues, and
// pods that do not go.
func (e *Engine) describe(instances []*Instance) {
	e.t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "at %s, the last requests:\n", time.Now().Format(time.RFC3339Nano))
	requests := e.Proxy.Requests(func(r apiproxy.Request) bool { return r.Resource.Resource != "events" })
	for _, r := range requests[max(0, len(requests)-describedRequests):] {
		describeRequest(&text, r)
	}
	text.WriteString("without an answer:\n")
	for _, r := range e.Proxy.Unanswered() {
		describeRequest(&text, r)
	}
	for _, i := range instances {
		fmt.Fprintf(&text, "%s: %+v\n", i.descriptor.Name(), i.Work())
	}
	for _, informer := range e.pool.Status() {
		fmt.Fprintf(&text, "informer %+v\n", informer)
	}
	e.describePods(&text)
	e.t.Log(text.String())
}

// describePods that are being deleted: controllers may wait for them in silence.
func (e *Engine) describePods(text *strings.Builder) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	pods, err := e.Admin.CoreV1().Pods(e.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(text, "list pods: %v\n", err)
		return
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.DeletionTimestamp != nil {
			fmt.Fprintf(text, "being deleted: pod %s on node %q, at %s after a grace period of %d s, finalizers %v\n", pod.Name, pod.Spec.NodeName,
				pod.DeletionTimestamp.Format(time.TimeOnly), ptr.Deref(pod.DeletionGracePeriodSeconds, -1), pod.Finalizers)
		}
	}
}

func describeRequest(text *strings.Builder, r apiproxy.Request) {
	fmt.Fprintf(text, "  %s %d %s %s\n", r.At.Format("15:04:05.000"), r.Code, r.Verb, r.Path)
}
