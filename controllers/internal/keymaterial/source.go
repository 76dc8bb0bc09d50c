// Package keymaterial keeps the certificates and keys that a controller uses as
// their files are: a changed file is used from the next operation on, without a
// restart of the controller. What cannot be used is rejected, and what was used
// before stays in use.
package keymaterial

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/filewatch"
)

// timeInterval is how often it is looked whether time has made material valid, or invalid.
const timeInterval = time.Minute

// Options of a Source. Name, Files and Parse are required.
type Options[T any] struct {
	// Name says in logs, metrics and summaries what it is, such as root CA.
	Name string
	// Files are read together, as of one moment.
	Files []File
	// Parse makes a value of the contents of Files, in their order. Its error and
	// its warnings must not hold anything of a secret file.
	Parse func(contents [][]byte, now time.Time) (value T, warnings []string, err error)
	// Validity is the time in which a value can be used; the zero time is no
	// limit. What cannot be used now never replaces what can. May be nil.
	Validity func(value T) (notBefore, notAfter time.Time)
	// Remedy ends every error: what to do about it.
	Remedy string
	// OnChange is called after another value has come into use. May be nil.
	OnChange func()
}

// File of a Source.
type File struct {
	Path string
	// Secret files hold a private key. A warning is given when everybody can read one.
	Secret bool
}

// Source is a value that is made of files and follows them. Its methods may be
// called concurrently.
type Source[T any] struct {
	o       Options[T]
	origin  origin
	logger  *slog.Logger
	clock   clock.WithTicker
	metrics *metrics

	mu    sync.Mutex
	phase phase
	// current is in use; candidate waits for its time, nil when none does.
	current   *loaded[T]
	candidate *loaded[T]
	rejected  *Rejection
	// unusable is set while current is out of its time.
	unusable string
}

// phase of a source.
type phase int

const (
	// idle sources read their files whenever they are asked for the value: a
	// standby may have been made long ago.
	idle phase = iota
	following
	ended
)

// loaded is a value with where it comes from.
type loaded[T any] struct {
	value               T
	digests             []string
	warnings            []string
	notBefore, notAfter time.Time
	at                  time.Time
}

// New reads the files. It returns an error when no value can be made of them;
// one that is not valid now is better than none. The controller must run Runners.
func New[T any](env controller.Env, o Options[T]) (*Source[T], error) {
	var paths []string
	for _, file := range o.Files {
		paths = append(paths, file.Path)
	}
	return newSource(env, o, newFiles(paths, env.Logger))
}

func newSource[T any](env controller.Env, o Options[T], from origin) (*Source[T], error) {
	metrics, err := newMetrics(env, o.Name)
	if err != nil {
		return nil, err
	}
	s := &Source[T]{o: o, origin: from, logger: env.Logger.With("material", o.Name), clock: env.Clock, metrics: metrics}
	if _, err := s.take(s.origin.read()); err != nil {
		return nil, err
	}
	return s, nil
}

// Current is the value in use.
func (s *Source[T]) Current() T {
	s.mu.Lock()
	changed := false
	if s.phase == idle {
		changed, _ = s.takeLocked(s.origin.read()) // the error is kept as the rejection
	}
	value := s.current.value
	s.mu.Unlock()
	s.notify(changed)
	return value
}

// Runners follow the files and the time, as controller.Controller wants them.
func (s *Source[T]) Runners() []func(context.Context) error {
	return []func(context.Context) error{s.follow, s.followTime}
}

func (s *Source[T]) follow(ctx context.Context) error {
	s.mu.Lock()
	changed, _ := s.takeLocked(s.origin.read()) // the error is kept as the rejection
	s.phase = following
	s.metrics.begin(s.rejected != nil, s.current.notAfter)
	s.mu.Unlock()
	s.notify(changed)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.phase = ended
		s.metrics.end()
	}()
	return s.origin.follow(ctx, func(set filewatch.Set) {
		changed, _ := s.take(set) // the error is kept as the rejection
		s.notify(changed)
	})
}

// followTime takes into use what has become valid, and tells of what has expired.
func (s *Source[T]) followTime(ctx context.Context) error {
	ticker := s.clock.NewTicker(timeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
			s.notify(s.timePassed())
		}
	}
}

func (s *Source[T]) timePassed() (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if s.candidate != nil && s.candidate.check(now) == nil {
		s.use(s.candidate)
		return true
	}
	s.lookAtTime(now)
	return false
}

func (s *Source[T]) notify(changed bool) {
	if changed && s.o.OnChange != nil {
		s.o.OnChange()
	}
}

// take uses what was read, or rejects it.
func (s *Source[T]) take(set filewatch.Set) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(set)
}

func (s *Source[T]) takeLocked(set filewatch.Set) (changed bool, err error) {
	now := s.clock.Now()
	read, err := s.parse(set, now)
	if err != nil {
		s.candidate = nil
		return false, s.reject(err, now)
	}
	if s.current != nil && slices.Equal(read.digests, s.current.digests) {
		s.candidate = nil
		s.clearRejection()
		return false, nil
	}
	if err := read.check(now); err != nil && s.current != nil && s.current.check(now) == nil {
		s.candidate = read
		return false, s.reject(s.describe(err), now)
	}
	s.use(read)
	return true, nil
}

func (s *Source[T]) parse(set filewatch.Set, now time.Time) (*loaded[T], error) {
	read := &loaded[T]{at: now}
	var contents [][]byte
	var errs []error
	for _, file := range set.Files {
		errs = append(errs, file.Err)
		contents = append(contents, file.Data)
		read.digests = append(read.digests, file.Digest)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, s.describe(err)
	}
	var err error
	if read.value, read.warnings, err = s.o.Parse(contents, now); err != nil {
		return nil, s.describe(err)
	}
	if s.o.Validity != nil {
		read.notBefore, read.notAfter = s.o.Validity(read.value)
	}
	for _, file := range s.o.Files {
		if warning := exposed(file); warning != "" {
			read.warnings = append(read.warnings, warning)
		}
	}
	return read, nil
}

// describe names the files and the remedy.
func (s *Source[T]) describe(err error) error {
	return fmt.Errorf("%s of %s: %w; %s", s.o.Name, strings.Join(s.origin.names(), " and "), err, s.o.Remedy)
}

// exposed warns of a key that everybody can read.
func exposed(file File) string {
	if !file.Secret {
		return ""
	}
	info, err := os.Stat(file.Path)
	if err != nil || info.Mode().Perm()&0o004 == 0 {
		return "" // it was read, so that an error means that it is being replaced
	}
	return fmt.Sprintf("%s holds a private key and can be read by every user of the machine; "+
		"take the right away with chmod o-r, or set defaultMode 0400 of the volume", file.Path)
}

// use and the following are called with mu held.
func (s *Source[T]) use(read *loaded[T]) {
	first := s.current == nil
	s.current, s.candidate, s.unusable = read, nil, ""
	s.logger.Info("Key material is in use", "files", s.origin.names(), "first", first, "notAfter", read.notAfter)
	for _, warning := range read.warnings {
		s.logger.Warn("Key material should be looked at", "warning", warning)
	}
	s.metrics.loaded(read.notAfter)
	s.clearRejection()
	s.lookAtTime(s.clock.Now())
}

func (s *Source[T]) lookAtTime(now time.Time) {
	err := s.current.check(now)
	if err == nil {
		s.unusable = ""
		return
	}
	if text := s.describe(err).Error(); text != s.unusable {
		s.unusable = text
		s.logger.Error("Key material in use is not valid", "err", text)
	}
}

func (s *Source[T]) reject(err error, now time.Time) error {
	if s.current == nil {
		return err // the caller has nothing to go on with
	}
	if s.rejected == nil || s.rejected.Error != err.Error() {
		s.rejected = &Rejection{At: now, Error: err.Error()}
		s.logger.Error("Changed key material is rejected, what was loaded before stays in use", "err", err)
	}
	s.metrics.setRejected(true)
	return err
}

func (s *Source[T]) clearRejection() {
	if s.rejected != nil {
		s.logger.Info("Key material on disk is good again", "files", s.origin.names())
	}
	s.rejected = nil
	s.metrics.setRejected(false)
}

// check says why the value cannot be used now.
func (l *loaded[T]) check(now time.Time) error {
	switch {
	case now.Before(l.notBefore):
		return fmt.Errorf("it is not valid before %s, and now it is %s", utc(l.notBefore), utc(now))
	case !l.notAfter.IsZero() && now.After(l.notAfter):
		return fmt.Errorf("it has expired at %s, and now it is %s", utc(l.notAfter), utc(now))
	}
	return nil
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }
