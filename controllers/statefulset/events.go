package statefulset

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
)

// Reasons of the events on a StatefulSet.
const (
	successfulCreate      = "SuccessfulCreate"
	failedCreate          = "FailedCreate"
	successfulUpdate      = "SuccessfulUpdate"
	failedUpdate          = "FailedUpdate"
	successfulDelete      = "SuccessfulDelete"
	failedDelete          = "FailedDelete"
	conflictingController = "ConflictingController"
	unknownStrategy       = "UnknownStrategy"
)

// done reports what was done to a pod.
func (p *pass) done(reason, verb string, pod *v1.Pod) {
	p.events.Eventf(p.set, v1.EventTypeNormal, reason, "%s Pod %s in StatefulSet %s successful", verb, pod.Name, p.set.Name)
}

// failed reports what could not be done to a pod, unless this process has given
// it up itself, or its namespace is being deleted.
func (p *pass) failed(ctx context.Context, reason, verb, pod string, err error) {
	if podcontrol.GivenUp(ctx, err) || podcontrol.NamespaceTerminating(err) {
		return
	}
	p.events.Eventf(p.set, v1.EventTypeWarning, reason, "%s Pod %s in StatefulSet %s failed error: %v", verb, pod, p.set.Name, err)
}

func (p *pass) claimCreated(claim, pod string) {
	p.events.Eventf(p.set, v1.EventTypeNormal, successfulCreate, "Create Claim %s Pod %s in StatefulSet %s success", claim, pod, p.set.Name)
}

func (p *pass) claimFailed(ctx context.Context, claim, pod string, err error) {
	if podcontrol.GivenUp(ctx, err) || podcontrol.NamespaceTerminating(err) {
		return
	}
	p.events.Eventf(p.set, v1.EventTypeWarning, failedCreate,
		"Create Claim %s for Pod %s in StatefulSet %s failed error: %v", claim, pod, p.set.Name, err)
}

// claimConflicts reports a claim that something else controls. The message is
// kube-controller-manager's, letter for letter.
func (p *pass) claimConflicts(claim string) {
	p.events.Eventf(p.set, v1.EventTypeWarning, conflictingController,
		"PersistentVolumeClaim %s has a conflicting OwnerReference that acts as a manging controller, "+
			"the retention policy is ignored for this claim", claim)
}
