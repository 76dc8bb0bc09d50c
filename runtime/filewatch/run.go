package filewatch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// How long a change may be put off because more changes follow.
const (
	// replacedWait bounds it for files that are replaced as a whole.
	replacedWaitFactor = 5
	replacedWaitLeast  = 500 * time.Millisecond
	// writtenWait bounds it for files that are written in place, or are missing.
	writtenWaitFactor = 50
	writtenWaitLeast  = 5 * time.Second
)

// Run follows the files until ctx ends. It returns when nothing of it is left:
// no goroutine, no open file, no watch. An error means that it could not start.
func (w *Watcher) Run(ctx context.Context) error {
	if len(w.o.Paths) == 0 || w.o.OnChange == nil {
		return errors.New("follow files: no paths or no OnChange")
	}
	var paths []string
	for _, path := range w.o.Paths {
		abs, err := absolute(path)
		if err != nil {
			return fmt.Errorf("follow %s: %w", path, err)
		}
		paths = append(paths, abs)
	}
	r := &run{
		w:        w,
		notifier: newNotifier(paths, w.o.Logger),
		timer:    stoppedTimer(),
		poll:     stoppedTimer(),
	}
	r.debounce, r.pollInterval = w.currentIntervals()
	defer r.end()
	r.start()
	r.loop(ctx)
	return nil
}

// absolute leaves .. alone, since what it means depends on symbolic links.
func absolute(path string) (string, error) {
	if filepath.IsAbs(path) {
		return path, nil
	}
	here, err := filepath.Abs(".")
	return here + string(filepath.Separator) + path, err
}

func stoppedTimer() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// run is one call of Run.
type run struct {
	w                      *Watcher
	notifier               *notifier
	debounce, pollInterval time.Duration
	timer, poll            *time.Timer
	pending                *pending
}

// pending is a change that was noticed and not read yet.
type pending struct {
	trigger string
	// first and last time that something was noticed.
	first, last time.Time
	// retry is when to do something although it is not quiet.
	retry time.Time
	// held is a reading that waits to see whether the files it read are
	// written to, while their names may go on to other files.
	held capture
}

func (r *run) start() {
	if !r.w.o.PollOnly {
		r.notifier.open()
	}
	_, settled := r.notifier.arm()
	if r.w.base == nil {
		r.look(TriggerStart)
	} else {
		r.notice(TriggerEvent) // what changed since Read
	}
	if !settled {
		r.notice(TriggerEvent)
	}
	if r.notifier.watcher == nil && r.pollInterval <= 0 {
		r.w.o.Logger.Warn("files are not followed: no file system events and no polling", "paths", r.w.o.Paths)
	}
}

func (r *run) end() {
	r.timer.Stop()
	r.poll.Stop()
	r.forget()
	r.notifier.close()
}

func (r *run) loop(ctx context.Context) {
	r.schedulePoll()
	for {
		r.schedule()
		select {
		case <-ctx.Done():
			return
		case <-r.notifier.noticed:
			r.notice(TriggerEvent)
			r.notifier.arm()
		case <-r.timer.C:
			r.due()
		case <-r.poll.C:
			r.compare()
			r.schedulePoll()
		case <-r.w.check:
			r.notifier.arm()
			r.look(TriggerSignal)
		case <-r.w.intervals:
			r.debounce, r.pollInterval = r.w.currentIntervals()
			r.schedulePoll()
		}
	}
}

// notice starts or prolongs the wait for quiet.
func (r *run) notice(trigger string) {
	now := time.Now()
	if r.pending == nil {
		r.pending = &pending{trigger: trigger, first: now, retry: now.Add(r.replacedWait())}
	}
	r.pending.last = now
}

func (r *run) forget() {
	if r.pending != nil {
		r.pending.held.close()
	}
	r.pending = nil
}

// quiet is the debounce, but never so short that a file that changes all the
// time keeps a processor busy.
func (r *run) quiet() time.Duration { return max(r.debounce, time.Millisecond) }

func (r *run) replacedWait() time.Duration {
	return max(replacedWaitLeast, replacedWaitFactor*r.debounce)
}

func (r *run) writtenWait() time.Duration {
	return max(writtenWaitLeast, writtenWaitFactor*r.debounce)
}

// schedule sets the timer to when due has something to do.
func (r *run) schedule() {
	p := r.pending
	if p == nil {
		r.timer.Stop()
		return
	}
	at := p.last.Add(r.quiet())
	if p.retry.Before(at) {
		at = p.retry
	}
	r.timer.Reset(time.Until(at))
}

func (r *run) schedulePoll() {
	if r.pollInterval <= 0 {
		r.poll.Stop()
		return
	}
	r.poll.Reset(r.pollInterval)
}

// due reads the files when they have been quiet, or when they have not been
// for too long.
func (r *run) due() {
	if r.pending == nil {
		return
	}
	if changed, settled := r.notifier.arm(); changed || !settled {
		r.notice(r.pending.trigger)
	}
	p, now := r.pending, time.Now()
	switch {
	case now.Sub(p.last) >= r.quiet():
		r.look(p.trigger)
	case now.Before(p.retry):
	case p.held.settled(), now.Sub(p.first) >= r.writtenWait() && p.held.readable():
		// Nobody writes to these files any more: they are whole, even though
		// others may have taken their names meanwhile. Or somebody never stops
		// writing. What came after them is still pending.
		r.report(p.held.set(p.trigger))
		p.held.close()
		p.held, p.first, p.retry = nil, now, now.Add(r.replacedWait())
	default:
		p.held.close()
		held, stable := r.w.capture()
		if !stable {
			held.close()
			held = nil
		}
		p.held, p.retry = held, now.Add(r.quiet())
	}
}

// look reads the files, reports them if they differ, and keeps looking later
// if they change under it.
func (r *run) look(trigger string) {
	c, stable := r.w.capture()
	c.close()
	if !stable {
		r.notice(trigger)
		return
	}
	r.forget()
	if !r.report(c.set(trigger)) && trigger == TriggerSignal && r.w.o.OnUnchanged != nil {
		r.w.o.OnUnchanged()
	}
}

func (r *run) report(set Set) bool {
	if !r.w.rebase(set) {
		return false
	}
	r.w.o.OnChange(set)
	return true
}

// compare looks for a change that no event told of.
func (r *run) compare() {
	if r.notifier.watcher == nil && !r.w.o.PollOnly {
		r.notifier.open()
	}
	changed, settled := r.notifier.arm()
	if r.pending != nil {
		if changed || !settled {
			r.notice(TriggerPoll)
		}
		return
	}
	c, stable := r.w.capture()
	c.close()
	if !stable || r.w.differs(c.set(TriggerPoll)) {
		r.notice(TriggerPoll)
	}
}
