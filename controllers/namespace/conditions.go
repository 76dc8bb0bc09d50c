package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// conditions say what the sweep has found, all five of them.
func (f *findings) conditions() []corev1.NamespaceCondition {
	return []corev1.NamespaceCondition{
		condition(corev1.NamespaceDeletionDiscoveryFailure, f.discoveryText(),
			"DiscoveryFailed", "ResourcesDiscovered", "All resources successfully discovered"),
		condition(corev1.NamespaceDeletionGVParsingFailure, errorText(f.unparsed),
			"GroupVersionParsingFailed", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
		condition(corev1.NamespaceDeletionContentFailure, f.failureText(),
			"ContentDeletionFailed", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		condition(corev1.NamespaceContentRemaining, f.leftText(),
			"SomeResourcesRemain", "ContentRemoved", "All content successfully removed"),
		condition(corev1.NamespaceFinalizersRemaining, f.heldText(),
			"SomeFinalizersRemain", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}

// condition is True with the trouble as its message, if there is one.
func condition(kind corev1.NamespaceConditionType, trouble, bad, good, fine string) corev1.NamespaceCondition {
	if trouble != "" {
		return corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionTrue, Reason: bad, Message: trouble}
	}
	return corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: good, Message: fine}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (f *findings) discoveryText() string {
	var groups *discovery.ErrGroupDiscoveryFailed
	if errors.As(f.unknown, &groups) {
		return fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(groups.Groups), f.unknown)
	}
	return errorText(f.unknown)
}

func (f *findings) failureText() string {
	if len(f.failures) == 0 {
		return ""
	}
	texts := make([]string, 0, len(f.failures))
	for _, failure := range f.failures {
		texts = append(texts, failure.Error())
	}
	slices.Sort(texts)
	return fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(texts), strings.Join(texts, ", "))
}

func (f *findings) leftText() string {
	return listing("Some resources are remaining: ", f.left, "%s has %d resource instances")
}

func (f *findings) heldText() string {
	return listing("Some content in the namespace has finalizers remaining: ", f.held, "%s in %d resource instances")
}

// listing of what there is some of, sorted; empty when there is nothing.
func listing(before string, counts map[string]int, format string) string {
	if len(counts) == 0 {
		return ""
	}
	texts := make([]string, 0, len(counts))
	for name, count := range counts {
		texts = append(texts, fmt.Sprintf(format, name, count))
	}
	slices.Sort(texts)
	return before + strings.Join(texts, ", ")
}

// merge conditions into those of a namespace: others stay, in their order. It
// tells whether anything is different.
func merge(present, found []corev1.NamespaceCondition, now time.Time) (merged []corev1.NamespaceCondition, changed bool) {
	merged = slices.Clone(present)
	for _, c := range found {
		i := slices.IndexFunc(merged, func(p corev1.NamespaceCondition) bool { return p.Type == c.Type })
		switch {
		case i < 0:
			c.LastTransitionTime = metav1.NewTime(now)
			merged = append(merged, c)
		case merged[i].Status != c.Status:
			c.LastTransitionTime = metav1.NewTime(now)
			merged[i] = c
		case merged[i].Reason != c.Reason || merged[i].Message != c.Message:
			c.LastTransitionTime = merged[i].LastTransitionTime
			merged[i] = c
		default:
			continue
		}
		changed = true
	}
	return merged, changed
}

// writeConditions if they have changed. They are information: a failure is not
// worth another sweep.
func (c *namespaceController) writeConditions(ctx context.Context, n *corev1.Namespace, found *findings) {
	merged, changed := merge(n.Status.Conditions, found.conditions(), c.clock.Now())
	if !changed {
		return
	}
	n = n.DeepCopy()
	n.Status.Conditions = merged
	_, err := c.client.CoreV1().Namespaces().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	if err == nil || notfound.ByAPIServer(err) {
		return
	}
	if apierrors.IsConflict(err) {
		c.logger.Debug("Conditions are written after the next sweep", "namespace", n.Name, "err", err)
		return
	}
	c.logger.Warn("Conditions cannot be written", "namespace", n.Name, "err", err)
}
