package ownslices

import (
	"context"

	discovery "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

// Operations that Writer.Count is told of.
const (
	Create = "create"
	Update = "update"
	Delete = "delete"
)

// Writer writes slices and lets Tracker and Unsure know. All fields are required.
type Writer struct {
	Client  discoveryclient.EndpointSlicesGetter
	Tracker *Tracker
	Unsure  *unsettled.Keys
	// Count is called after each write.
	Count func(operation string)
}

// Create makes a slice of service.
func (w *Writer) Create(ctx context.Context, service cache.ObjectName, slice *discovery.EndpointSlice) (*discovery.EndpointSlice, error) {
	created, err := w.Client.EndpointSlices(service.Namespace).Create(ctx, slice, metav1.CreateOptions{})
	return w.wrote(service, created, Create, err)
}

// Update replaces a slice of service. The error of one that is gone is marked with work.Overtaken.
func (w *Writer) Update(ctx context.Context, service cache.ObjectName, slice *discovery.EndpointSlice) (*discovery.EndpointSlice, error) {
	updated, err := w.Client.EndpointSlices(service.Namespace).Update(ctx, slice, metav1.UpdateOptions{})
	if notfound.ByAPIServer(err) {
		err = work.Overtaken(err)
	}
	return w.wrote(service, updated, Update, err)
}

func (w *Writer) wrote(service cache.ObjectName, answer *discovery.EndpointSlice, operation string, err error) (*discovery.EndpointSlice, error) {
	if err != nil {
		w.Unsure.Note(service, err)
		return nil, err
	}
	w.Tracker.Wrote(service, answer)
	w.Count(operation)
	return answer, nil
}

// Delete deletes that very slice of service. One that is gone is no error.
func (w *Writer) Delete(ctx context.Context, service cache.ObjectName, slice *discovery.EndpointSlice) error {
	w.Tracker.Deletes(service, slice.UID)
	err := w.Client.EndpointSlices(service.Namespace).Delete(ctx, slice.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(slice.UID)),
	})
	switch {
	case err == nil:
		w.Count(Delete)
		return nil
	case notfound.ByAPIServer(err), apierrors.IsConflict(err):
		return nil // a conflict means that another slice has the name now
	}
	w.Tracker.Lost(service, slice.UID)
	w.Unsure.Note(service, err)
	return err
}
