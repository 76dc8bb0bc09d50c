package client

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Marks are the highest resourceVersions that writes came back with, by resource.
type Marks struct{}

// NewMarks makes empty marks.
func NewMarks() *Marks { return &Marks{} }

// Record keeps resourceVersion if it is higher than the one kept.
func (m *Marks) Record(resource schema.GroupResource, resourceVersion string) {}

// Merge records all of marks.
func (m *Marks) Merge(marks map[schema.GroupResource]string) {}

// Snapshot returns a copy.
func (m *Marks) Snapshot() map[schema.GroupResource]string { return nil }

// WithMarks returns a context whose successful mutating requests are recorded
// in m, beside the marks of the client and of ctx's parents.
func WithMarks(ctx context.Context, m *Marks) context.Context { return ctx }
