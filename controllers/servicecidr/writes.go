package servicecidr

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingac "k8s.io/client-go/applyconfigurations/networking/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/uidguard"
)

const (
	finalizer    = "networking.k8s.io/service-cidr-finalizer"
	fieldManager = "service-cidr-controller"

	// gracePeriod from the deletion on is what API servers may need to learn of
	// it: until then they allocate from the range.
	gracePeriod = 10 * time.Second
	// recheck is when a ServiceCIDR is looked at again that has gone since the
	// cache saw it, unless its event brings it back before.
	recheck = 10 * time.Second

	// errorReason is the reason of the event about a condition that cannot be written.
	errorReason = "KubernetesServiceCIDRError"
)

// What the condition Ready says.
var (
	ready = metav1.Condition{
		Type:    networkingv1.ServiceCIDRConditionReady,
		Status:  metav1.ConditionTrue,
		Message: "Kubernetes Service CIDR is ready",
	}
	held = metav1.Condition{
		Type:   networkingv1.ServiceCIDRConditionReady,
		Status: metav1.ConditionFalse,
		Reason: networkingv1.ServiceCIDRReasonTerminating,
		Message: "There are still IPAddresses referencing the ServiceCIDR, " +
			"please remove them or create a new ServiceCIDR",
	}
)

// setReady says that cidr is ready. Refused is as in setCondition.
func (c *cidrController) setReady(ctx context.Context, cidr *networkingv1.ServiceCIDR) (refused bool, err error) {
	refused, err = c.setCondition(ctx, cidr, ready)
	if err != nil && ctx.Err() == nil {
		c.events.Event(cidr, corev1.EventTypeWarning, errorReason, "The ServiceCIDR Status can not be set to Ready=True")
	}
	return refused, err
}

// setCondition makes cidr say what want says. Refused means that cidr is gone,
// which is no error.
func (c *cidrController) setCondition(ctx context.Context, cidr *networkingv1.ServiceCIDR, want metav1.Condition) (refused bool, err error) {
	have := meta.FindStatusCondition(cidr.Status.Conditions, want.Type)
	if have != nil && have.Status == want.Status && have.Reason == want.Reason && have.Message == want.Message {
		return false, nil
	}
	condition := metaac.Condition().
		WithType(want.Type).
		WithStatus(want.Status).
		WithReason(want.Reason).
		WithMessage(want.Message).
		WithLastTransitionTime(metav1.NewTime(c.clock.Now()))
	apply := networkingac.ServiceCIDR(cidr.Name).
		WithUID(cidr.UID).
		WithStatus(networkingac.ServiceCIDRStatus().WithConditions(condition))
	_, err = c.client.NetworkingV1().ServiceCIDRs().ApplyStatus(ctx, apply, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if uidguard.Refused(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("set condition %s of service CIDR %s to %s: %w", want.Type, cidr.Name, want.Status, err)
	}
	return false, nil
}

// protected tells whether cidr has the finalizer.
func protected(cidr *networkingv1.ServiceCIDR) bool {
	return slices.Contains(cidr.Finalizers, finalizer)
}

func (c *cidrController) addFinalizer(ctx context.Context, cidr *networkingv1.ServiceCIDR) (refused bool, err error) {
	if protected(cidr) {
		return false, nil
	}
	return c.patchFinalizers(ctx, cidr, "finalizers")
}

func (c *cidrController) removeFinalizer(ctx context.Context, cidr *networkingv1.ServiceCIDR) (refused bool, err error) {
	return c.patchFinalizers(ctx, cidr, "$deleteFromPrimitiveList/finalizers")
}

// patchFinalizers with the finalizer alone; others keep theirs.
func (c *cidrController) patchFinalizers(ctx context.Context, cidr *networkingv1.ServiceCIDR, directive string) (refused bool, err error) {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": cidr.UID, directive: []string{finalizer}},
	})
	if err != nil {
		return false, fmt.Errorf("encode a patch of service CIDR %s: %w", cidr.Name, err)
	}
	_, err = c.client.NetworkingV1().ServiceCIDRs().Patch(ctx, cidr.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{
		FieldManager: fieldManager,
	})
	if uidguard.Refused(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("patch finalizers of service CIDR %s: %w", cidr.Name, err)
	}
	return false, nil
}
