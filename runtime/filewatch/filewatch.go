// Package filewatch follows the content of a set of files, however it comes to
// change: written in place, renamed over, reached through a symbolic link that
// now points elsewhere, removed and made again, or hidden by a new mount.
package filewatch

import (
	"context"
	"log/slog"
	"time"
)

// Defaults of Options.
const (
	DefaultDebounce = 100 * time.Millisecond
	DefaultMaxBytes = 1 << 20
)

// Triggers of a Set.
const (
	TriggerStart  = "start"
	TriggerEvent  = "event"
	TriggerPoll   = "poll"
	TriggerSignal = "signal"
)

// Options of a Watcher. Paths and OnChange are required.
type Options struct {
	// Paths of the files that are followed as one set.
	Paths []string
	// OnChange is called from Run, one call at a time, with the newest content
	// whenever it differs from what the last call, or Read, was given. Files
	// that change meanwhile are reported by the next call. It should validate
	// what it is given: a writer that does not replace files atomically can be
	// seen half done.
	OnChange func(Set)
	// OnUnchanged is called from Run when a look asked for by Check found the
	// content unchanged. May be nil.
	OnUnchanged func()
	// Debounce is how long the files must be quiet before they are read.
	// Default: DefaultDebounce.
	Debounce time.Duration
	// PollInterval is how often contents are compared without any event.
	// Default: 0, never.
	PollInterval time.Duration
	// MaxBytes of one file; a larger one is reported as an error without being
	// read. Default: DefaultMaxBytes.
	MaxBytes int64
	// PollOnly does not ask the file system for events.
	PollOnly bool
	// Logger. Default: discards.
	Logger *slog.Logger
}

// Set is the content of all files at one moment.
type Set struct {
	// Files in the order of Options.Paths.
	Files []File
	// Trigger is why the files were read: start, event, poll or signal.
	Trigger string
}

// File is the content of one file.
type File struct {
	// Path as it was given.
	Path string
	// Data is nil when Err is set.
	Data []byte
	// Digest is the sha256 of Data, in hex; empty when Err is set.
	Digest string
	// Err says why the file cannot be used; fs.ErrNotExist when it is missing.
	Err error
	// Changed since the last call of OnChange or Read.
	Changed bool
}

// Watcher follows a set of files.
type Watcher struct{ o Options }

// New makes a watcher that does nothing yet.
func New(o Options) *Watcher { return &Watcher{o: o} }

// Read reads the files now. Run then reports only what differs from it;
// without a Read before Run, the first content is reported with trigger start.
// Not to be called after Run.
func (w *Watcher) Read() Set { return Set{} }

// Run follows the files until ctx ends. It returns when nothing of it is left:
// no goroutine, no open file, no watch.
func (w *Watcher) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Check asks for a look now, without waiting for an event or for quiet.
func (w *Watcher) Check() {}

// SetIntervals changes debounce and pollInterval while the watcher runs; a
// pollInterval of 0 turns polling off.
func (w *Watcher) SetIntervals(debounce, pollInterval time.Duration) {}

// ReadFile reads one regular file of at most maxBytes.
func ReadFile(path string, maxBytes int64) File { return File{Path: path} }
