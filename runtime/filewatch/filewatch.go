// Package filewatch follows the content of a set of files, however it comes to
// change: written in place, renamed over, reached through a symbolic link that
// now points elsewhere, removed and made again, or hidden by a new mount.
//
// File system events only say when to look; what is reported is always the
// content found by reading. So an event that is lost, doubled or wrong costs at
// most a look, and the same content is never reported twice in a row.
package filewatch

import (
	"log/slog"
	"sync"
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
	// whenever it differs from what the last call, or Read, was given. What
	// changes meanwhile is reported by the next call. It should validate what
	// it is given: a writer that does not replace files atomically can be seen
	// half done.
	OnChange func(Set)
	// OnUnchanged is called from Run when a look asked for by Check found the
	// content unchanged. May be nil.
	OnUnchanged func()
	// Debounce is how long the files must be quiet before they are read.
	// Files that are replaced again and again are read after five times as
	// long (at least 500ms) all the same, files that are written in place
	// again and again after fifty times as long (at least 5s).
	// Default: DefaultDebounce.
	Debounce time.Duration
	// PollInterval is how often contents are compared without any event. It
	// finds what the file system does not tell: other machines' writes, new
	// mounts. Default: 0, never.
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
	// Err says why the file cannot be used; it wraps fs.ErrNotExist when the
	// file is missing, ErrTooLarge, ErrUnstable, or ErrNotRegular, with
	// syscall.EISDIR when it is a directory.
	Err error
	// Changed since the last call of OnChange or Read.
	Changed bool
}

// Watcher follows a set of files.
type Watcher struct {
	o     Options
	check chan struct{}
	// base is what was reported last, per file; nil before the first report.
	base []string

	mu           sync.Mutex
	debounce     time.Duration
	pollInterval time.Duration
	intervals    chan struct{}
}

// New makes a watcher that does nothing yet.
func New(o Options) *Watcher {
	if o.Debounce == 0 {
		o.Debounce = DefaultDebounce
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Watcher{
		o:            o,
		check:        make(chan struct{}, 1),
		debounce:     o.Debounce,
		pollInterval: o.PollInterval,
		intervals:    make(chan struct{}, 1),
	}
}

// Read reads the files now. Run then reports only what differs from it;
// without a Read before Run, the first content is reported with trigger start.
// Not to be called after Run.
func (w *Watcher) Read() Set {
	c, stable := w.capture()
	c.close()
	set := c.set(TriggerStart)
	if !stable {
		for i := range set.Files {
			if set.Files[i].Err == nil {
				set.Files[i] = File{Path: set.Files[i].Path, Err: unstable(set.Files[i].Path)}
			}
		}
	}
	w.rebase(set)
	return set
}

// Check asks for a look now, without waiting for an event or for quiet.
func (w *Watcher) Check() { nudge(w.check) }

// SetIntervals changes how long the files must be quiet and how often they are
// compared, while the watcher runs. A debounce of 0 reads at once, a
// pollInterval of 0 turns polling off.
func (w *Watcher) SetIntervals(debounce, pollInterval time.Duration) {
	w.mu.Lock()
	w.debounce, w.pollInterval = debounce, pollInterval
	w.mu.Unlock()
	nudge(w.intervals)
}

func (w *Watcher) currentIntervals() (debounce, pollInterval time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.debounce, w.pollInterval
}

// rebase marks in set what changed since the last report, makes set the last
// report, and tells whether anything changed.
func (w *Watcher) rebase(set Set) bool {
	changed := w.differs(set)
	for i := range set.Files {
		set.Files[i].Changed = w.base == nil || w.base[i] != fingerprint(set.Files[i])
	}
	w.base = make([]string, len(set.Files))
	for i, f := range set.Files {
		w.base[i] = fingerprint(f)
	}
	return changed
}

func (w *Watcher) differs(set Set) bool {
	if w.base == nil {
		return true
	}
	for i, f := range set.Files {
		if w.base[i] != fingerprint(f) {
			return true
		}
	}
	return false
}

// fingerprint is equal for files with the same content, or the same error.
func fingerprint(f File) string {
	if f.Err != nil {
		return "error: " + f.Err.Error()
	}
	return f.Digest
}

// nudge leaves one message in a channel of capacity 1.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
