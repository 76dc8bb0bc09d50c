package runtime

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/filewatch"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// leastCredentialsPoll is the least time between two comparisons of files that
// nobody edits by hand.
const leastCredentialsPoll = time.Minute

// followCredentials keeps the clients' credentials as their files are.
func (m *Manager) followCredentials(ctx context.Context) {
	for ctx.Err() == nil {
		m.followFiles(ctx, m.clients.Files())
	}
}

// credentialFiles gives the watcher of the credentials' files its intervals.
type credentialFiles struct {
	mu      sync.Mutex
	watcher *filewatch.Watcher
	reload  schema.Reload
}

func (f *credentialFiles) follow(watcher *filewatch.Watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watcher = watcher
	f.setIntervals()
}

// apply implements part.apply.
func (f *credentialFiles) apply(reload schema.Reload) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reload = reload
	f.setIntervals()
}

func (f *credentialFiles) setIntervals() {
	if f.watcher != nil {
		f.watcher.SetIntervals(f.reload.Debounce.Duration, max(f.reload.PollInterval.Duration, leastCredentialsPoll))
	}
}

// followFiles returns when ctx ends or other files are to be followed.
func (m *Manager) followFiles(ctx context.Context, files []string) {
	if len(files) == 0 {
		<-ctx.Done()
		return
	}
	round, end := context.WithCancel(ctx)
	defer end()
	watcher := filewatch.New(filewatch.Options{
		Paths: files,
		OnChange: func(set filewatch.Set) {
			changed, err := m.clients.Reload()
			switch {
			case err != nil:
				m.log.Error("credentials could not be reloaded, those in use stay in use", "err", err)
			case changed:
				m.log.Info("credentials reloaded", "trigger", set.Trigger)
			}
			if !slices.Equal(m.clients.Files(), files) {
				end()
			}
		},
		Logger: m.logging.Logger("client"),
	})
	m.credentialFiles.follow(watcher)
	var running sync.WaitGroup
	running.Go(func() {
		if err := watcher.Run(round); err != nil {
			m.log.Error("credentials are not followed any more", "err", err)
			<-ctx.Done()
		}
	})
	running.Wait()
}
