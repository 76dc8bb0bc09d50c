package runtime

import (
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/server"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// messageLimit keeps events below the API's limit of 1024 bytes.
const messageLimit = 1000

// engineEvents records what the engine does on the Lease, and on the Pod when
// the process runs in one.
type engineEvents struct {
	recorder record.EventRecorder
	objects  []*corev1.ObjectReference
}

// newEngineEvents reads the pod's name from POD_NAME and POD_NAMESPACE.
func newEngineEvents(recorder record.EventRecorder, c schema.LeaderElection) *engineEvents {
	e := &engineEvents{recorder: recorder, objects: []*corev1.ObjectReference{{
		APIVersion: "coordination.k8s.io/v1",
		Kind:       "Lease",
		Namespace:  c.ResourceNamespace,
		Name:       c.ResourceName,
	}}}
	if name, namespace := os.Getenv("POD_NAME"), os.Getenv("POD_NAMESPACE"); name != "" && namespace != "" {
		e.objects = append(e.objects, &corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name,
		})
	}
	return e
}

func (e *engineEvents) record(eventType, reason, message string) {
	if len(message) > messageLimit {
		message = strings.ToValidUTF8(message[:messageLimit], "") + "…"
	}
	for _, object := range e.objects {
		e.recorder.Event(object, eventType, reason, message)
	}
}

func (e *engineEvents) reloaded(r server.Reload) {
	steps := make([]string, 0, len(r.Plan))
	for _, s := range r.Plan {
		steps = append(steps, fmt.Sprintf("%s %s%s", s.Action, s.Controller, s.Setting))
	}
	what := "nothing to do"
	if len(steps) > 0 {
		what = strings.Join(steps, ", ")
	}
	eventType := corev1.EventTypeNormal
	if len(r.Errors) > 0 {
		eventType = corev1.EventTypeWarning
		what += "; tried again: " + schema.Errors(r.Errors).Error()
	}
	e.record(eventType, "ConfigReloaded", fmt.Sprintf("Configuration %.12s applied: %s", r.Digest, what))
}

func (e *engineEvents) rejected(r *config.Rejection) {
	e.record(corev1.EventTypeWarning, "ConfigRejected",
		fmt.Sprintf("Configuration rejected, the last good one stays in force: %s", r.Errors.Error()))
}

// stateChanged records the states that an admin waits for.
func (e *engineEvents) stateChanged(name string, to supervisor.State, reason string) {
	switch to {
	case supervisor.Running:
		e.record(corev1.EventTypeNormal, "ControllerStarted", fmt.Sprintf("Controller %s started", name))
	case supervisor.Disabled:
		e.record(corev1.EventTypeNormal, "ControllerStopped", fmt.Sprintf("Controller %s stopped: %s", name, reason))
	case supervisor.Failed, supervisor.Stuck:
		e.record(corev1.EventTypeWarning, "ControllerFailed", fmt.Sprintf("Controller %s: %s: %s", name, to, reason))
	}
}
