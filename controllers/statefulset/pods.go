package statefulset

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/podcontrol"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// createPod creates the pod with ordinal, after its claims. It does nothing
// while a claim is about to go with an earlier pod: its deletion brings the set back.
func (p *pass) createPod(ctx context.Context, ordinal int) error {
	waiting, err := p.claimsGo(ordinal)
	if err != nil || waiting {
		return err
	}
	pod, err := p.podFor(ordinal)
	if err != nil {
		p.failed(ctx, failedCreate, "Create", nameOf(p.set.Name, ordinal), err)
		return err
	}
	err = p.createWithClaims(ctx, pod, ordinal)
	// Claims get their owners even if the pod is refused: when the set is
	// deleted before there is a pod, nothing else lets them go.
	if alignErr := p.alignClaims(ctx, pod, ordinal); alignErr != nil {
		err = errors.Join(err, p.updateFailed(ctx, pod, alignErr))
	}
	return err
}

func (p *pass) createWithClaims(ctx context.Context, pod *v1.Pod, ordinal int) error {
	if err := p.createClaims(ctx, ordinal); err != nil {
		p.failed(ctx, failedCreate, "Create", pod.Name, err)
		return err
	}
	created, err := p.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		p.unsure.Note(p.key, err)
		if !apierrors.IsAlreadyExists(err) {
			p.failed(ctx, failedCreate, "Create", pod.Name, err)
		}
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	p.done(successfulCreate, "Create", created)
	return nil
}

// updatePod gives a pod what it lacks of its identity and its storage, and
// nothing to one that lacks nothing.
func (p *pass) updatePod(ctx context.Context, pod *v1.Pod, ordinal int) error {
	stored := hasStorage(p.set, pod, ordinal)
	if stored && hasIdentity(pod) {
		return nil
	}
	changed := pod.DeepCopy()
	setIdentity(changed, ordinal)
	if !stored {
		if err := p.createClaims(ctx, ordinal); err != nil {
			return p.updateFailed(ctx, pod, err)
		}
		setStorage(p.set, changed, ordinal)
	}
	if _, err := p.client.CoreV1().Pods(pod.Namespace).Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
		p.unsure.Note(p.key, err)
		return p.updateFailed(ctx, pod, err)
	}
	p.done(successfulUpdate, "Update", pod)
	return nil
}

// updateFailed reports why a pod, or the owners of its claims, were not updated.
func (p *pass) updateFailed(ctx context.Context, pod *v1.Pod, err error) error {
	if !apierrors.IsConflict(err) && !notfound.ByAPIServer(err) { // the cache's lag, which ends by itself
		p.failed(ctx, failedUpdate, "Update", pod.Name, err)
	}
	return fmt.Errorf("update pod %s: %w", pod.Name, err)
}

// finishDeletions asks again for those that came to a halt, since the pods in
// their places wait for them. It returns when one that is under way is to be
// looked at again, 0 if none is.
func (p *pass) finishDeletions(ctx context.Context) (time.Duration, error) {
	var again time.Duration
	for _, member := range p.members {
		stuck, checkIn := podcontrol.DeletionStuck(member.Pod, p.now)
		if stuck {
			if err := p.deletePod(ctx, member.Pod); err != nil {
				return 0, err
			}
		}
		again = work.Soonest(again, checkIn)
	}
	return again, nil
}

// deletePod deletes that very pod. That it is gone already is no error.
func (p *pass) deletePod(ctx context.Context, pod *v1.Pod) error {
	err := p.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	switch {
	case err == nil:
		p.done(successfulDelete, "Delete", pod)
		return nil
	case notfound.ByAPIServer(err), apierrors.IsConflict(err):
		return nil // a conflict means that another pod has the name now
	}
	p.unsure.Note(p.key, err)
	p.failed(ctx, failedDelete, "Delete", pod.Name, err)
	return fmt.Errorf("delete pod %s: %w", pod.Name, err)
}
