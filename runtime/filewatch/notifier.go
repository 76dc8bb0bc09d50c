package filewatch

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// armAttempts bounds how often the paths are traced again when they change
// while watches are being placed along them.
const armAttempts = 10

// notifier keeps watches on everything along the paths. Its watcher is nil
// while there are no file system events.
type notifier struct {
	paths  []string
	logger *slog.Logger
	// noticed has a message when something happened that can change what the
	// paths lead to.
	noticed chan struct{}
	watcher *fsnotify.Watcher
	pump    sync.WaitGroup
	// armed is what is watched, by path, as it was when the watch was placed.
	armed map[string]fs.FileInfo
	// files that the paths led to when they were last traced, nil where nowhere.
	files []fs.FileInfo
	// failed watches that the log has been told about.
	failed map[string]bool

	mu sync.Mutex
	// names that matter, by watched directory.
	names map[string]map[string]bool
}

func newNotifier(paths []string, logger *slog.Logger) *notifier {
	return &notifier{paths: paths, logger: logger, noticed: make(chan struct{}, 1), failed: map[string]bool{}}
}

// open asks for file system events; without them the notifier still traces.
func (n *notifier) open() {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		if !n.failed[""] {
			n.logger.Warn("no file system events, changes are found by polling only", "err", err)
		}
		n.failed[""] = true
		return
	}
	delete(n.failed, "")
	n.watcher = watcher
	n.armed = map[string]fs.FileInfo{}
	n.pump.Go(func() { n.listen(watcher) })
}

func (n *notifier) close() {
	if n.watcher == nil {
		return
	}
	if err := n.watcher.Close(); err != nil {
		n.logger.Warn("closing the file system watch", "err", err)
	}
	n.pump.Wait()
	n.watcher = nil
}

// listen never waits for the goroutine that places watches, because the
// watcher may hold the lock which that one waits for until its message is taken.
func (n *notifier) listen(watcher *fsnotify.Watcher) {
	for {
		select {
		case event, ok := <-watcher.Events:
			if !ok {
				return
			}
			if n.relevant(event) {
				n.logger.Debug("file system event", "path", event.Name, "op", event.Op.String())
				nudge(n.noticed)
			}
		case err, ok := <-watcher.Errors:
			if !ok {
				return
			}
			// Events may have been lost, as when the kernel's queue overflows.
			n.logger.Info("file system events may be lost, the files are read again", "err", err)
			nudge(n.noticed)
		}
	}
}

// relevant tells whether an event can change what the paths lead to.
func (n *notifier) relevant(e fsnotify.Event) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[filepath.Dir(e.Name)][filepath.Base(e.Name)]
}

// expect makes targets what is relevant and tells whether anything is that was not before.
func (n *notifier) expect(targets []target) (more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.names
	n.names = make(map[string]map[string]bool, len(targets))
	for _, t := range targets {
		n.names[t.path] = t.names
		known, ok := before[t.path]
		more = more || !ok
		for name := range t.names {
			more = more || !known[name]
		}
	}
	return more
}

// arm places watches along the paths as they lead now and tells whether the
// files are others, or were written to, since the last call. When it returns
// true, or with settled false, something may have changed without an event.
func (n *notifier) arm() (changed, settled bool) {
	before := n.files
	for range armAttempts {
		targets, files := traceAll(n.paths)
		n.files = files
		// A directory can change between the moment it is traced and the moment
		// it is watched: only a trace that needs nothing new is complete.
		if !n.place(targets) {
			settled = true
			break
		}
	}
	return before != nil && !sameFiles(before, n.files), settled
}

// place makes targets the watched ones and tells whether any is new.
func (n *notifier) place(targets []target) (placed bool) {
	if n.watcher == nil {
		return false
	}
	placed = n.expect(targets)
	alive := map[string]bool{}
	for _, path := range n.watcher.WatchList() {
		alive[path] = true
	}
	wanted := map[string]bool{}
	for _, t := range targets {
		wanted[t.path] = alive[t.path] && n.armed[t.path] != nil && os.SameFile(n.armed[t.path], t.info)
	}
	// Old watches go first: one on an inode that was moved would otherwise be
	// taken for the new path's, and vanish with the move.
	for path := range alive {
		if !wanted[path] {
			n.remove(path)
		}
	}
	for path := range n.armed {
		if !wanted[path] {
			delete(n.armed, path)
		}
	}
	for _, t := range targets {
		if !wanted[t.path] && n.add(t) {
			placed = true
		}
	}
	return placed
}

func (n *notifier) add(t target) bool {
	err := n.watcher.Add(t.path)
	switch {
	case err == nil:
		n.armed[t.path] = t.info
		delete(n.failed, t.path)
		return true
	case errors.Is(err, fs.ErrNotExist):
		return true // gone since it was traced: trace again
	case !n.failed[t.path]:
		n.failed[t.path] = true
		n.logger.Warn("no file system events, changes are found by polling only", "path", t.path, "err", err)
	}
	return false
}

func (n *notifier) remove(path string) {
	// The kernel drops the watch of an inode that is gone, so that there may be
	// none to remove any more.
	if err := n.watcher.Remove(path); err != nil {
		n.logger.Debug("watch was gone already", "path", path, "err", err)
	}
}

func sameFiles(a, b []fs.FileInfo) bool {
	for i := range a {
		switch {
		case a[i] == nil && b[i] == nil:
		case a[i] == nil || b[i] == nil,
			!os.SameFile(a[i], b[i]),
			a[i].Size() != b[i].Size(),
			!a[i].ModTime().Equal(b[i].ModTime()):
			return false
		}
	}
	return true
}
