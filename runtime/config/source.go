package config

import (
	"context"
	"log/slog"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Options of Load and of a Source. Scheme is required.
type Options struct {
	Scheme *schema.Scheme
	// Path of the configuration file. Empty: defaults, environment and Set only.
	Path string
	// Set are the path=value arguments of --set, in their order.
	Set []string
	// Environ is the environment as os.Environ gives it.
	Environ []string
	// Logger. Default: discards.
	Logger *slog.Logger
}

// Load reads and validates the configuration once.
func Load(o Options) (*Snapshot, schema.Errors) { return nil, nil }

// Source follows the configuration file.
type Source struct{}

// NewSource makes a source that does nothing yet.
func NewSource(o Options) *Source { return &Source{} }

// Load reads the configuration now. Run then reports only what differs from
// it; without it, Run's first update is what it finds at its start. Not to be
// called after Run.
func (s *Source) Load() (*Snapshot, schema.Errors) { return nil, nil }

// Run follows the file until ctx ends.
func (s *Source) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Updates delivers what Run finds, oldest first. While updates wait, a newer
// snapshot replaces the one that waits, and a newer rejection the one that
// waits, so at most one of each does. A snapshot that follows a rejection
// clears it, also when its digest is that of the configuration already in use.
func (s *Source) Updates() <-chan Update { return nil }

// Trigger looks at the file now, as on SIGHUP.
func (s *Source) Trigger() {}
