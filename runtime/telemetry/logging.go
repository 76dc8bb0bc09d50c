package telemetry

import (
	"io"
	"log/slog"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Logging is the daemon's log. A Kubernetes verbosity of n is slog.Level(-n).
type Logging struct{}

// NewLogging makes a log that writes to w with the default settings.
// isTerminal decides what the format auto means.
func NewLogging(w io.Writer, isTerminal bool) *Logging { return &Logging{} }

// Logger of a module: a controller's canonical name or an engine package. Its
// level and format follow Apply.
func (l *Logging) Logger(module string) *slog.Logger { return slog.New(slog.DiscardHandler) }

// Apply takes effect at once for all loggers handed out.
func (l *Logging) Apply(c schema.Logging) error { return nil }

// Verbosity is the level of modules without one of their own.
func (l *Logging) Verbosity() int { return 0 }

// SetVerbosity changes it until the next Apply; below 0 is an error.
func (l *Logging) SetVerbosity(v int) error { return nil }

// RouteKlog sends client-go's klog, slog's default logger and the log package
// through this log, as module client-go. It is for the process as a whole.
func (l *Logging) RouteKlog() {}
