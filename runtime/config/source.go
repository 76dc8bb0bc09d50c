package config

import (
	"context"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/filewatch"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Source follows the configuration file. Environment and --set stay as they
// were at the start of the process.
type Source struct {
	o       Options
	watcher *filewatch.Watcher // nil without a file
	loaded  bool
	waiting *waiting
	updates chan Update
}

// NewSource makes a source that does nothing yet.
func NewSource(o Options) *Source { return newSource(o, false) }

func newSource(o Options, pollOnly bool) *Source {
	s := &Source{o: o.withDefaults(), waiting: newWaiting(), updates: make(chan Update)}
	if o.Path == "" {
		return s
	}
	reload := o.Scheme.Default().Reload
	s.watcher = filewatch.New(filewatch.Options{
		Paths:        []string{o.Path},
		OnChange:     func(set filewatch.Set) { s.found(&set.Files[0], set.Trigger) },
		OnUnchanged:  func() { s.o.Logger.Info("configuration file unchanged", "path", o.Path) },
		Debounce:     reload.Debounce.Duration,
		PollInterval: reload.PollInterval.Duration,
		MaxBytes:     schema.MaxFileSize,
		PollOnly:     pollOnly,
		Logger:       s.o.Logger,
	})
	return s
}

// Load reads the configuration now. Run then reports only what differs from
// it; without it, Run's first update is what it finds at its start. Not to be
// called after Run.
func (s *Source) Load() (*Snapshot, schema.Errors) {
	s.loaded = true
	var file *filewatch.File
	if s.watcher != nil {
		set := s.watcher.Read()
		file = &set.Files[0]
	}
	return s.evaluate(file, filewatch.TriggerStart)
}

// Run follows the file until ctx ends. Nothing of it is left when it returns.
func (s *Source) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.follow(ctx) }()
	for {
		// A nil channel takes no update.
		var updates chan<- Update
		next, ok := s.waiting.first()
		if ok {
			updates = s.updates
		}
		select {
		case updates <- next:
			s.waiting.remove(next)
		case <-s.waiting.changed:
		case err := <-ended:
			return err
		case <-ctx.Done():
			return <-ended
		}
	}
}

func (s *Source) follow(ctx context.Context) error {
	if s.watcher != nil {
		return s.watcher.Run(ctx)
	}
	if !s.loaded {
		s.found(nil, filewatch.TriggerStart)
	}
	<-ctx.Done()
	return nil
}

// Updates delivers what Run finds, oldest first. While updates wait, a newer
// snapshot replaces the one that waits, and a newer rejection the one that
// waits, so at most one of each does. A snapshot that follows a rejection
// clears it, also when its digest is that of the configuration already in use.
func (s *Source) Updates() <-chan Update { return s.updates }

// Trigger looks at the file now, as on SIGHUP. An unchanged file is not
// reported, only logged.
func (s *Source) Trigger() {
	if s.watcher == nil {
		s.o.Logger.Info("no configuration file to look at")
		return
	}
	s.watcher.Check()
}

// found evaluates what the file has become.
func (s *Source) found(file *filewatch.File, trigger string) {
	snapshot, errs := s.evaluate(file, trigger)
	if len(errs) == 0 {
		s.waiting.add(Update{Snapshot: snapshot})
		return
	}
	rejection := &Rejection{At: time.Now(), Trigger: trigger, Errors: errs}
	if file != nil {
		rejection.Digest = file.Digest
	}
	s.waiting.add(Update{Rejection: rejection})
}

// evaluate also follows the file as the newest valid configuration wants it.
func (s *Source) evaluate(file *filewatch.File, trigger string) (*Snapshot, schema.Errors) {
	snapshot, errs := s.o.evaluate(file, trigger)
	if len(errs) == 0 && s.watcher != nil {
		reload := snapshot.Config.Reload
		s.watcher.SetIntervals(reload.Debounce.Duration, reload.PollInterval.Duration)
	}
	return snapshot, errs
}
