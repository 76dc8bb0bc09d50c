package revisions

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// maxOwnerName is how much of an owner's name Name takes: 30 bytes less than a name may have.
const maxOwnerName = 223

// Name returns the name of owner's revision with hash; a long name of the owner is cut.
func Name(owner, hash string) string {
	return owner[:min(len(owner), maxOwnerName)] + "-" + hash
}

// Sort sorts by number, the oldest first; equal numbers by age, then by name.
func Sort(history []*appsv1.ControllerRevision) {
	slices.SortFunc(history, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(
			cmp.Compare(a.Revision, b.Revision),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

// NextNumber returns the number of a revision that is to be the newest: 1 if there is none yet.
func NextNumber(history []*appsv1.ControllerRevision) int64 {
	var highest int64
	for _, revision := range history {
		highest = max(highest, revision.Revision)
	}
	return highest + 1
}

// WithData returns those of history that store data, in their order.
func WithData(history []*appsv1.ControllerRevision, data []byte) []*appsv1.ControllerRevision {
	var equal []*appsv1.ControllerRevision
	for _, revision := range history {
		if bytes.Equal(revision.Data.Raw, data) {
			equal = append(equal, revision)
		}
	}
	return equal
}

// Snapshot is a revision to be made. All fields are required.
type Snapshot struct {
	Owner     metav1.Object
	OwnerKind schema.GroupVersionKind
	Template  *v1.PodTemplateSpec
	// Data of Template.
	Data   []byte
	Number int64
	// Name, see Name.
	Name string
	// Hash is the value of the label HashLabel.
	Hash, HashLabel string
}

// Revision returns the object, which nobody has created yet. It has the labels
// of the template and the annotations of the owner, among which is the change
// cause that `kubectl rollout history` shows.
func (s Snapshot) Revision() *appsv1.ControllerRevision {
	labels := maps.Clone(s.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[s.HashLabel] = s.Hash
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       s.Owner.GetNamespace(),
			Name:            s.Name,
			Labels:          labels,
			Annotations:     maps.Clone(s.Owner.GetAnnotations()),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.Owner, s.OwnerKind)},
		},
		Data:     runtime.RawExtension{Raw: s.Data},
		Revision: s.Number,
	}
}

// Create creates revision. When the name is taken, the revision of that name is
// returned with taken true if it stores the same data, as one does that an
// earlier request has made; otherwise the error is the API server's
// AlreadyExists: the names collide, and another one is needed.
func Create(
	ctx context.Context, client kubernetes.Interface, revision *appsv1.ControllerRevision,
) (created *appsv1.ControllerRevision, taken bool, err error) {
	api := client.AppsV1().ControllerRevisions(revision.Namespace)
	created, refusal := api.Create(ctx, revision, metav1.CreateOptions{})
	if refusal == nil {
		return created, false, nil
	}
	if !apierrors.IsAlreadyExists(refusal) {
		return nil, false, fmt.Errorf("create revision %s: %w", revision.Name, refusal)
	}
	there, err := api.Get(ctx, revision.Name, metav1.GetOptions{})
	if err != nil {
		return nil, false, fmt.Errorf("read revision %s: %w", revision.Name, err)
	}
	if !bytes.Equal(there.Data.Raw, revision.Data.Raw) {
		return nil, false, fmt.Errorf("create revision %s: %w", revision.Name, refusal)
	}
	return there, true, nil
}

// Renumber gives revision another number, as when the owner returns to its
// template. It returns the API server's answer; revision itself is not changed.
// The error is a conflict when revision is not the newest state.
func Renumber(
	ctx context.Context, client kubernetes.Interface, revision *appsv1.ControllerRevision, number int64,
) (*appsv1.ControllerRevision, error) {
	changed := *revision // nothing else is changed, so nothing else needs a copy
	changed.Revision = number
	answer, err := client.AppsV1().ControllerRevisions(revision.Namespace).Update(ctx, &changed, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("number revision %s %d: %w", revision.Name, number, err)
	}
	return answer, nil
}

// DeleteOldest deletes count of history, which is sorted, but those to be kept;
// nothing if count is not positive. It ends with the first error. That one is
// gone already is none.
func DeleteOldest(
	ctx context.Context, client kubernetes.Interface, history []*appsv1.ControllerRevision, count int,
	keep func(*appsv1.ControllerRevision) bool,
) error {
	for _, revision := range history {
		if count <= 0 {
			return nil
		}
		if keep(revision) {
			continue
		}
		if err := Delete(ctx, client, revision); err != nil {
			return err
		}
		count--
	}
	return nil
}

// Delete deletes that very revision. That it is gone already is no error.
func Delete(ctx context.Context, client kubernetes.Interface, revision *appsv1.ControllerRevision) error {
	err := client.AppsV1().ControllerRevisions(revision.Namespace).Delete(ctx, revision.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(revision.UID)),
	})
	if err != nil && !notfound.ByAPIServer(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete revision %s: %w", revision.Name, err)
	}
	return nil
}
