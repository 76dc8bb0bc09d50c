package statefulset

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// createPod creates the pod with ordinal, after its claims. It does nothing
// while a claim is about to go with an earlier pod: its deletion brings the set back.
func (p *pass) createPod(ctx context.Context, ordinal int) error {
	waiting, err := p.claimsGo(ordinal)
	if err != nil || waiting {
		return err
	}
	version, err := p.versionFor(ordinal)
	if err != nil {
		return err
	}
	pod, err := newPod(p.set, ordinal, version)
	if err != nil {
		p.failed(ctx, failedCreate, "Create", nameOf(p.set.Name, ordinal), err)
		return err
	}
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
	if err := p.alignClaims(ctx, created, ordinal); err != nil {
		p.failed(ctx, failedUpdate, "Update", created.Name, err)
		return err
	}
	return nil
}

// updatePod gives a pod what it lacks of its identity, its claims their owners,
// and nothing to one that lacks nothing.
func (p *pass) updatePod(ctx context.Context, pod *v1.Pod, ordinal int) error {
	aligned, err := p.claimsAligned(pod, ordinal)
	if err != nil {
		p.logger.Error("Cannot look up the claims of a pod, its retention policy is put off", "pod", pod.Name, "err", err)
		aligned = true
	}
	stored := hasStorage(p.set, pod, ordinal)
	if !aligned {
		err = p.alignClaims(ctx, pod, ordinal)
	}
	if !stored && err == nil {
		err = p.createClaims(ctx, ordinal)
	}
	if err == nil && (!stored || !hasIdentity(pod)) {
		changed := pod.DeepCopy()
		setIdentity(changed, ordinal)
		if !stored {
			setStorage(p.set, changed, ordinal)
		}
		_, err = p.client.CoreV1().Pods(pod.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
		if err == nil {
			p.done(successfulUpdate, "Update", pod)
			return nil
		}
		p.unsure.Note(p.key, err)
	}
	if err == nil {
		return nil
	}
	if !apierrors.IsConflict(err) { // a conflict is the cache's lag, which ends by itself
		p.failed(ctx, failedUpdate, "Update", pod.Name, err)
	}
	return fmt.Errorf("update pod %s: %w", pod.Name, err)
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
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // a conflict means that another pod has the name now
	}
	p.unsure.Note(p.key, err)
	p.failed(ctx, failedDelete, "Delete", pod.Name, err)
	return fmt.Errorf("delete pod %s: %w", pod.Name, err)
}
