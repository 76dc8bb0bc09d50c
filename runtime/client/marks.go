package client

import (
	"context"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Marks are the highest resourceVersions that writes came back with, by
// resource: a cache that has reached them has seen these writes. They may be
// used by several goroutines at once.
type Marks struct {
	mu       sync.Mutex
	versions map[schema.GroupResource]string
}

// NewMarks makes empty marks.
func NewMarks() *Marks {
	return &Marks{versions: map[schema.GroupResource]string{}}
}

// Record keeps resourceVersion if it is higher than the one kept. One that
// cannot be compared, as of an aggregated API, is ignored.
func (m *Marks) Record(resource schema.GroupResource, resourceVersion string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept, ok := m.versions[resource]
	if !ok {
		kept = resourceVersion // comparing it with itself tells whether it is well formed
	}
	order, err := resourceversion.CompareResourceVersion(resourceVersion, kept)
	if err == nil && (order > 0 || !ok) {
		m.versions[resource] = resourceVersion
	}
}

// Merge records all of marks.
func (m *Marks) Merge(marks map[schema.GroupResource]string) {
	for resource, version := range marks {
		m.Record(resource, version)
	}
}

// Snapshot returns a copy.
func (m *Marks) Snapshot() map[schema.GroupResource]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.versions)
}

type marksKey struct{}

// WithMarks returns a context whose successful mutating requests are recorded
// in m, beside the marks of the client and those of ctx's own parents.
func WithMarks(ctx context.Context, m *Marks) context.Context {
	parents := marksOf(ctx)
	return context.WithValue(ctx, marksKey{}, append(parents[:len(parents):len(parents)], m))
}

func marksOf(ctx context.Context) []*Marks {
	marks, _ := ctx.Value(marksKey{}).([]*Marks)
	return marks
}
