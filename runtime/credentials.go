package runtime

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/filewatch"
)

// followCredentials keeps the clients' credentials as their files are.
func (m *Manager) followCredentials(ctx context.Context) {
	for ctx.Err() == nil {
		m.followFiles(ctx, m.clients.Files())
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
	effective, _ := m.supervisor.Effective()
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
		Debounce:     effective.Reload.Debounce.Duration,
		PollInterval: max(effective.Reload.PollInterval.Duration, time.Minute),
		Logger:       m.logging.Logger("client"),
	})
	var running sync.WaitGroup
	running.Go(func() {
		if err := watcher.Run(round); err != nil {
			m.log.Error("credentials are not followed any more", "err", err)
			<-ctx.Done()
		}
	})
	running.Wait()
}
