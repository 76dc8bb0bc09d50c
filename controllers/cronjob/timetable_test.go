package cronjob

import (
	"math"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// at is a time of the form 2006-01-02T15:04:05Z07:00.
func at(t testing.TB, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// scheduled is a CronJob that was created at a time.
func scheduled(schedule, zone string, created time.Time) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "backup", UID: "1", CreationTimestamp: metav1.NewTime(created)},
		Spec:       batchv1.CronJobSpec{Schedule: schedule, TimeZone: &zone},
	}
}

func timesOf(t testing.TB, schedule, zone string, created time.Time) timetable {
	t.Helper()
	times, err := new(zoneCache).timetableOf(scheduled(schedule, zone, created))
	if err != nil {
		t.Fatalf("%q in %s: %v", schedule, zone, err)
	}
	return times
}

func TestLatest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, schedule, zone string
		after, now           string
		want                 string // empty: none
		count                int
	}{
		{"before the first", "* * * * *", "UTC", "2026-11-30T10:00:30Z", "2026-11-30T10:00:59Z", "", 0},
		{"at the first", "* * * * *", "UTC", "2026-11-30T10:00:30Z", "2026-11-30T10:01:00Z", "2026-11-30T10:01:00Z", 1},
		{"a time itself does not count again", "* * * * *", "UTC", "2026-11-30T10:01:00Z", "2026-11-30T10:01:59Z", "", 0},
		{"some", "*/5 * * * *", "UTC", "2026-11-30T10:00:00Z", "2026-11-30T10:17:00Z", "2026-11-30T10:15:00Z", 3},
		{"a hundred", "* * * * *", "UTC", "2026-11-30T10:00:00Z", "2026-11-30T11:40:00Z", "2026-11-30T11:40:00Z", 100},
		{"a hundred and one", "* * * * *", "UTC", "2026-11-30T10:00:00Z", "2026-11-30T11:41:00Z", "2026-11-30T11:41:00Z", 101},
		{"98 days", "*/1 * * * *", "UTC", "2026-08-24T10:00:00Z", "2026-11-30T10:00:59Z", "2026-11-30T10:00:00Z", 101},
		{"millions", "* * * * *", "UTC", "1970-01-01T00:00:00Z", "2026-11-30T10:00:59Z", "2026-11-30T10:00:00Z", 101},
		{"irregular", "30 6-16/4 * * 1-5", "UTC", "2026-11-23T06:30:00Z", "2026-11-30T06:00:00Z", "2026-11-27T14:30:00Z", 14},
		{"irregular, after a week-end", "30 10,11,12 * * 1-5", "UTC", "2026-11-26T10:30:00Z", "2026-11-27T16:30:00Z", "2026-11-27T12:30:00Z", 5},
		{"yearly", "@yearly", "UTC", "1999-06-01T00:00:00Z", "2026-11-30T10:00:00Z", "2026-01-01T00:00:00Z", 27},
		{"leap days", "0 0 29 2 *", "UTC", "2019-01-01T00:00:00Z", "2026-11-30T10:00:00Z", "2024-02-29T00:00:00Z", 2},
		{"never", "59 23 31 2 *", "UTC", "2019-01-01T00:00:00Z", "2026-11-30T10:00:00Z", "", 0},

		{"every, in phase with the creation", "@every 1h", "UTC", "2026-11-30T10:20:30Z", "2026-11-30T14:00:00Z", "2026-11-30T13:20:30Z", 3},
		{"every, none yet", "@every 1h", "UTC", "2026-11-30T10:20:30Z", "2026-11-30T11:20:29Z", "", 0},
		{"every, millions", "@every 1s", "UTC", "1970-01-01T00:00:00Z", "2026-11-30T14:00:00.9Z", "2026-11-30T14:00:00Z", 101},
		{"every, with fractions", "@every 90.9s", "UTC", "2026-11-30T10:00:00.5Z", "2026-11-30T10:04:30Z", "2026-11-30T10:04:30Z", 3},
		{"every, longer than all times", "@every 2562047h", "UTC", "1970-01-01T00:00:00Z", "2026-11-30T14:00:00Z", "", 0},

		{"in a zone", "30 9 * * *", "Asia/Kolkata", "2026-11-30T00:00:00Z", "2026-11-30T05:00:00Z", "2026-11-30T04:00:00Z", 1},
		{"the skipped hour", "30 2 * * *", "America/New_York", "2026-03-07T12:00:00-05:00", "2026-03-08T23:00:00-04:00", "", 0},
		{"beside the skipped hour", "0 1,3 * * *", "America/New_York", "2026-03-08T00:30:00-05:00", "2026-03-08T03:00:00-04:00", "2026-03-08T03:00:00-04:00", 2},
		{"each hour of 23", "0 * * * *", "America/New_York", "2026-03-08T00:00:00-05:00", "2026-03-09T00:00:00-04:00", "2026-03-09T00:00:00-04:00", 23},
		{"the repeated hour, first", "30 1 * * *", "America/New_York", "2026-11-01T00:00:00-04:00", "2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-04:00", 1},
		{"the repeated hour, again", "30 1 * * *", "America/New_York", "2026-11-01T00:00:00-04:00", "2026-11-01T01:30:00-05:00", "2026-11-01T01:30:00-05:00", 2},
		{"each hour of 25", "0 * * * *", "America/New_York", "2026-11-01T00:00:00-04:00", "2026-11-02T00:00:00-05:00", "2026-11-02T00:00:00-05:00", 25},
		{"half an hour repeated", "45 1 * * *", "Australia/Lord_Howe", "2026-04-04T13:00:00Z", "2026-04-04T15:20:00Z", "2026-04-04T15:15:00Z", 2},
		{"no midnight", "0 0 * * *", "America/Santiago", "2026-09-05T12:00:00Z", "2026-09-06T12:00:00Z", "", 0},
		{"years with both", "30 2 * * *", "Europe/Berlin", "2016-01-01T00:00:00Z", "2026-10-25T12:00:00Z", "2026-10-25T01:30:00Z", 101},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			after, now := at(t, test.after), at(t, test.now)
			got, count := timesOf(t, test.schedule, test.zone, after).latest(after, now)
			if count != test.count {
				t.Errorf("%d times, want %d", count, test.count)
			}
			if test.want == "" {
				if !got.IsZero() {
					t.Errorf("got %s, want none", got)
				}
			} else if want := at(t, test.want); !got.Equal(want) {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// The number of steps grows with the logarithm of the time that has passed.
func TestLatestTakesFewSteps(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-30T10:00:59Z")
	times := timesOf(t, "* * * * *", "Europe/Berlin", now)
	steps := 0
	times.cron = counting{times.cron, &steps}
	if _, count := times.latest(now.AddDate(-50, 0, 0), now); count <= tooMany || steps > 3*tooMany {
		t.Errorf("%d steps for 26 million times", steps)
	}
}

type counting struct {
	of    interface{ Next(time.Time) time.Time }
	steps *int
}

func (c counting) Next(after time.Time) time.Time {
	*c.steps++
	return c.of.Next(after)
}

func TestTimetableOf(t *testing.T) {
	t.Parallel()
	created := at(t, "2026-11-30T10:00:30Z")
	for _, test := range []struct {
		schedule, zone string
		next           string // empty: an error
	}{
		{"0 12 * * *", "UTC", "2026-11-30T12:00:00Z"},
		{"0 12 * * *", "America/New_York", "2026-11-30T12:00:00-05:00"},
		{"0 12 * * ?", "UTC", "2026-11-30T12:00:00Z"},
		{"@daily", "Asia/Tokyo", "2026-12-01T00:00:00+09:00"},
		{"@every 1h30m", "Asia/Tokyo", "2026-11-30T11:30:30Z"},
		// Its own zone counts, not the other one.
		{"TZ=America/New_York 0 12 * * *", "UTC", "2026-11-30T12:00:00-05:00"},
		{"CRON_TZ=America/New_York 0 12 * * *", "No/Where", "2026-11-30T12:00:00-05:00"},
		{"0 12 * * *", "No/Where", ""},
		{"TZ=0", "UTC", ""},
		{"CRON_TZ=UTC", "UTC", ""},
		{"TZ=../../etc/passwd * * * * *", "UTC", ""},
		{"", "UTC", ""},
		{"* * * *", "UTC", ""},
		{"* * * * * *", "UTC", ""},
		{"60 * * * *", "UTC", ""},
		{"@sometimes", "UTC", ""},
		{"@every soon", "UTC", ""},
	} {
		times, err := new(zoneCache).timetableOf(scheduled(test.schedule, test.zone, created))
		if test.next == "" {
			if err == nil {
				t.Errorf("%q in %s: no error", test.schedule, test.zone)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q in %s: %v", test.schedule, test.zone, err)
		} else if next := times.next(created); !next.Equal(at(t, test.next)) {
			t.Errorf("%q in %s: next is %s, want %s", test.schedule, test.zone, next, test.next)
		}
	}
	// Without a zone it is that of the process.
	cronJob := scheduled("0 12 * * *", "", created)
	cronJob.Spec.TimeZone = nil
	times, err := new(zoneCache).timetableOf(cronJob)
	if err != nil {
		t.Fatal(err)
	}
	if next := times.next(created).Local(); next.Hour() != 12 || next.Minute() != 0 {
		t.Errorf("next is %s, want 12:00", next)
	}
}

func TestNotBefore(t *testing.T) {
	t.Parallel()
	now := at(t, "2026-11-30T10:00:30Z")
	for _, test := range []struct {
		deadline *int64
		want     time.Duration // before now
	}{
		{ptr.To[int64](0), 0},
		{ptr.To[int64](10), 10 * time.Second},
		{ptr.To[int64](math.MaxInt64), math.MaxInt64 / time.Second * time.Second},
	} {
		cronJob := &batchv1.CronJob{Spec: batchv1.CronJobSpec{StartingDeadlineSeconds: test.deadline}}
		if got := now.Sub(notBefore(cronJob, now)); got != test.want {
			t.Errorf("%d: %s before now, want %s", *test.deadline, got, test.want)
		}
	}
	if !notBefore(&batchv1.CronJob{}, now).IsZero() {
		t.Error("no deadline bounds nothing")
	}
}

// zones with all sorts of changes of their clocks.
var zones = []string{"UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "America/Santiago", "America/Havana",
	"Africa/Cairo", "Pacific/Apia", "America/St_Johns"}

// FuzzLatest compares with a walk through all times.
func FuzzLatest(f *testing.F) {
	for _, schedule := range []string{"* * * * *", "30 1 * * *", "30 2 * * *", "0 0 * * *", "*/7 3 1-7 * 0", "30 6-16/4 * * 1-5",
		"@every 17m", "0 0 29 2 *", "59 23 31 2 *", "TZ=0", "@hourly", "0,30 */2 * 3,11 *", "TZ=Europe/Paris 5 2 * * *"} {
		for i := range zones {
			f.Add(schedule, uint8(i), int64(1_772_900_000), uint32(2_000_000))
			f.Add(schedule, uint8(i), int64(1_793_400_000), uint32(200_000))
		}
	}
	f.Fuzz(func(t *testing.T, schedule string, zone uint8, begin int64, seconds uint32) {
		// Within the years for which zones are known, and so short that a walk is possible.
		after := time.Unix(1_500_000_000+int64(uint64(begin)%700_000_000), 0)
		now := after.Add(time.Duration(seconds%10_000_000) * time.Second)
		times, err := new(zoneCache).timetableOf(scheduled(schedule, zones[int(zone)%len(zones)], after))
		if err != nil {
			return
		}
		got, count := times.latest(after, now)
		if count == 0 != got.IsZero() || !got.IsZero() && (!got.After(after) || got.After(now)) {
			t.Fatalf("%d times, the last at %s, between %s and %s", count, got, after, now)
		}
		var want time.Time
		walked := 0
		for next := times.next(after); !next.IsZero() && !next.After(now); next = times.next(next) {
			want = next
			walked++
		}
		if !got.Equal(want) || count != min(walked, tooMany+1) {
			t.Fatalf("%q in %s: got %s of %d, a walk finds %s of %d", schedule, zones[int(zone)%len(zones)], got, count, want, walked)
		}
	})
}

// FuzzParse must not panic.
func FuzzParse(f *testing.F) {
	for _, schedule := range []string{"", "TZ=", "TZ=0", "CRON_TZ=UTC *", "* * * * *", "@every -1h", "@every", ",", "1-/2 * * * *", "*/0 * * * *"} {
		f.Add(schedule, "UTC")
		f.Add(schedule, "")
	}
	f.Fuzz(func(t *testing.T, schedule, zone string) {
		parsed, err := new(zoneCache).scheduleOf(scheduled(schedule, zone, time.Time{}))
		if (parsed == nil) == (err == nil) {
			t.Errorf("got %v and %v", parsed, err)
		}
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Error("an error without a text")
		}
	})
}
