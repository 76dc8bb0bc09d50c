package harness

import (
	"fmt"
	"strings"
	"time"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
)

// describedRequests is how many requests a failed test shows.
const describedRequests = 40

// describe logs what the engine was doing when its test failed: the last
// requests, those without an answer, and what waits in queues.
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
	e.t.Log(text.String())
}

func describeRequest(text *strings.Builder, r apiproxy.Request) {
	fmt.Fprintf(text, "  %s %d %s %s\n", r.At.Format("15:04:05.000"), r.Code, r.Verb, r.Path)
}
