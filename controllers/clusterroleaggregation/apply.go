package clusterroleaggregation

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/uidguard"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

const (
	fieldManager = "clusterrole-aggregation-controller"
	// recheck is when a role is looked at again that has gone since the cache
	// saw it, unless its event brings it back before.
	recheck = 10 * time.Second
)

// patch is what is applied. The types of client-go leave empty rules out, which
// takes no rules away that somebody else has written.
type patch struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        patchMetadata       `json:"metadata"`
	Rules           []rbacv1.PolicyRule `json:"rules"`
}

type patchMetadata struct {
	Name string `json:"name"`
	// UID keeps a role that was deleted from being made again, and one that was
	// made since under the name from getting rules that are not its own.
	UID types.UID `json:"uid"`
}

// apply rules to role.
func (c *aggregator) apply(ctx context.Context, role *rbacv1.ClusterRole, rules []rbacv1.PolicyRule) (work.Result, error) {
	body, err := json.Marshal(patch{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		Metadata: patchMetadata{Name: role.Name, UID: role.UID},
		Rules:    append([]rbacv1.PolicyRule{}, rules...), // written as a list when there are none
	})
	if err != nil {
		return work.Result{}, fmt.Errorf("encode the rules of cluster role %s: %w", role.Name, err)
	}
	_, err = c.client.RbacV1().ClusterRoles().Patch(ctx, role.Name, types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: fieldManager, Force: ptr.To(true)})
	if uidguard.Refused(err) {
		return work.Result{RequeueAfter: recheck}, nil
	}
	if err != nil {
		return work.Result{}, fmt.Errorf("apply the rules of cluster role %s: %w", role.Name, err)
	}
	return work.Result{}, nil
}
