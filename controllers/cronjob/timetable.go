package cronjob

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // images may have no time zones

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

// tooMany missed times are worth a warning.
const tooMany = 100

// errNeverDue is of schedules such as that for February 31. The text is the one
// that users know.
var errNeverDue = errors.New("time difference between two schedules is less than 1 second")

// timetable are the times of a CronJob's schedule. They are whole seconds.
type timetable struct {
	// cron is nil for schedules of the form @every, which have every instead:
	// their times are anchor + n·every, n > 0.
	cron   cron.Schedule
	anchor time.Time
	every  time.Duration
}

// timetableOf returns the times of a CronJob, whose time zone must be known.
func (z *zoneCache) timetableOf(cronJob *batchv1.CronJob) (timetable, error) {
	schedule, err := z.scheduleOf(cronJob)
	if err != nil {
		return timetable{}, err
	}
	if constant, ok := schedule.(cron.ConstantDelaySchedule); ok {
		return timetable{anchor: since(cronJob).Truncate(time.Second), every: constant.Delay}, nil
	}
	return timetable{cron: schedule}, nil
}

// scheduleOf is in the CronJob's time zone. Without one it is in that of this process.
func (z *zoneCache) scheduleOf(cronJob *batchv1.CronJob) (cron.Schedule, error) {
	if cronJob.Spec.TimeZone == nil || hasOwnZone(cronJob.Spec.Schedule) {
		return parse(cronJob.Spec.Schedule)
	}
	zone, err := z.load(*cronJob.Spec.TimeZone)
	if err != nil {
		return nil, err
	}
	schedule, err := parse(strings.TrimSpace(cronJob.Spec.Schedule))
	if fields, ok := schedule.(*cron.SpecSchedule); ok {
		fields.Location = zone
	}
	return schedule, err
}

// since is the time after which runs are due.
func since(cronJob *batchv1.CronJob) time.Time {
	if last := cronJob.Status.LastScheduleTime; last != nil {
		return last.Time
	}
	return cronJob.CreationTimestamp.Time
}

// hasOwnZone tells whether a schedule names a time zone itself, as old ones may.
func hasOwnZone(schedule string) bool { return strings.Contains(schedule, "TZ") }

// parse parses a schedule of the standard format. The parser panics at some
// that end after the time zone.
func parse(schedule string) (parsed cron.Schedule, err error) {
	defer func() {
		if value := recover(); value != nil {
			parsed, err = nil, fmt.Errorf("invalid schedule format: %v", value)
		}
	}()
	return cron.ParseStandard(schedule)
}

// next returns the first time after another one; zero if there is none within
// the next five years.
func (t timetable) next(after time.Time) time.Time {
	if t.cron == nil {
		if after.Before(t.anchor) {
			after = t.anchor
		}
		return t.anchor.Add(after.Sub(t.anchor).Truncate(t.every)).Add(t.every)
	}
	next := t.cron.Next(after.Local())
	if !next.After(after) {
		return time.Time{}
	}
	return next
}

// latest returns the last time within (after, now], and how many there are
// there, of which it counts tooMany + 1 at most; 0 if there is none. It takes
// logarithmic time in the number of times.
func (t timetable) latest(after, now time.Time) (latest time.Time, count int) {
	for {
		next := t.next(after)
		if next.IsZero() || next.After(now) {
			return latest, count
		}
		if count++; count > tooMany {
			return t.search(next, now), count
		}
		latest, after = next, next
	}
}

// search returns the last time within [found, now], where found is one.
func (t timetable) search(found, now time.Time) time.Time {
	// No time is within (high, now].
	for high := now; high.Sub(found) > time.Second; {
		middle := found.Add(high.Sub(found) / 2)
		if next := t.next(middle); next.IsZero() || next.After(now) {
			high = middle
		} else {
			found = next
		}
	}
	// Bisection trusts that what is next does not depend on where the search
	// begins, but around a change of the clocks the library may skip a time
	// from afar that it finds from nearby.
	for range tooMany {
		next := t.next(found)
		if next.IsZero() || next.After(now) {
			break
		}
		found = next
	}
	return found
}
