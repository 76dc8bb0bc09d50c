package filewatch

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a polling watcher in fake time: polling needs no system call
// that waits, so the bubble's clock moves on whenever everything is quiet.
func inBubble(t *testing.T, o Options, test func(t *testing.T, path string, f *following)) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, "start")
	o.Paths, o.PollOnly = []string{path}, true
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, o)
		synctest.Wait()
		test(t, path, f)
		f.stop()
	})
}

func last(f *following) string {
	reports, _ := f.snapshot()
	return state(reports[len(reports)-1].Files[0])
}

func TestDebounceWaitsForQuiet(t *testing.T) {
	o := Options{Debounce: time.Second, PollInterval: 10 * time.Millisecond}
	inBubble(t, o, func(t *testing.T, path string, f *following) {
		replace(t, path, "a")
		time.Sleep(900 * time.Millisecond)
		replace(t, path, "ab")
		time.Sleep(900 * time.Millisecond)
		if got := last(f); got != "start" {
			t.Errorf("%q reported before the files were quiet", got)
		}
		time.Sleep(2 * time.Second)
		if got := last(f); got != "ab" {
			t.Errorf("reported %q, want ab", got)
		}
		if reports, _ := f.snapshot(); len(reports) != 2 {
			t.Errorf("reported %s", contents(reports))
		}
	})
}

func TestStreamOfReplacementsIsReportedWithinTheBound(t *testing.T) {
	o := Options{Debounce: 100 * time.Millisecond, PollInterval: 10 * time.Millisecond}
	inBubble(t, o, func(t *testing.T, path string, f *following) {
		for i := range 40 {
			replace(t, path, strings.Repeat("x", i+1))
			time.Sleep(50 * time.Millisecond)
		}
		reports, _ := f.snapshot()
		// 2 s of swaps: one report after every 500 ms and a debounce.
		if n := len(reports) - 1; n < 2 || n > 4 {
			t.Errorf("%d reports during the stream, want one about every 600ms", n)
		}
	})
}

func TestStreamOfWritesInPlaceIsNotReadHalfDoneNorPutOffForEver(t *testing.T) {
	o := Options{Debounce: 100 * time.Millisecond, PollInterval: 10 * time.Millisecond}
	inBubble(t, o, func(t *testing.T, path string, f *following) {
		content := ""
		write := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				content += "x"
				write(t, path, content)
			}
		}
		write(4500 * time.Millisecond)
		if got := last(f); got != "start" {
			t.Errorf("%d bytes reported while they were being written", len(got))
		}
		write(1500 * time.Millisecond)
		if got := last(f); got == "start" {
			t.Error("nothing reported though the writer never stops")
		}
		time.Sleep(time.Second)
		if got := last(f); got != content {
			t.Errorf("%d bytes reported, want %d", len(got), len(content))
		}
	})
}

func TestAbsenceIsReportedOnlyWhenQuiet(t *testing.T) {
	o := Options{Debounce: 100 * time.Millisecond, PollInterval: 10 * time.Millisecond}
	inBubble(t, o, func(t *testing.T, path string, f *following) {
		for i := range 200 {
			remove(t, path)
			time.Sleep(25 * time.Millisecond)
			write(t, path, fmt.Sprint(i))
			time.Sleep(25 * time.Millisecond)
		}
		reports, _ := f.snapshot()
		if s := contents(reports); strings.Contains(s, "error") {
			t.Errorf("reported %s", s)
		}
		remove(t, path)
		time.Sleep(time.Second)
		if got := last(f); !strings.Contains(got, "no such file") {
			t.Errorf("reported %q, want that the file is gone", got)
		}
	})
}

func TestIntervalsChangeLive(t *testing.T) {
	o := Options{Debounce: time.Minute}
	inBubble(t, o, func(t *testing.T, path string, f *following) {
		replace(t, path, "unseen")
		time.Sleep(time.Hour)
		if got := last(f); got != "start" {
			t.Errorf("%q reported without polling", got)
		}
		f.SetIntervals(time.Minute, time.Second)
		time.Sleep(30 * time.Second)
		if got := last(f); got != "start" {
			t.Errorf("%q reported before the debounce", got)
		}
		f.SetIntervals(time.Second, time.Second) // holds for the change that waits, too
		time.Sleep(time.Second)
		if got := last(f); got != "unseen" {
			t.Errorf("%q reported, want unseen", got)
		}
		f.SetIntervals(time.Second, 0)
		synctest.Wait()
		replace(t, path, "never")
		time.Sleep(time.Hour)
		if got := last(f); got != "unseen" {
			t.Errorf("%q reported after polling was turned off", got)
		}
	})
}

func TestCheckLooksAtOnce(t *testing.T) {
	o := Options{Debounce: time.Hour}
	inBubble(t, o, func(t *testing.T, path string, f *following) {
		f.Check()
		synctest.Wait()
		if reports, unchanged := f.snapshot(); unchanged != 1 || len(reports) != 1 {
			t.Errorf("unchanged %d times, reported %s", unchanged, contents(reports))
		}
		replace(t, path, "new")
		f.Check()
		synctest.Wait()
		reports, unchanged := f.snapshot()
		if last(f) != "new" || reports[1].Trigger != TriggerSignal || unchanged != 1 {
			t.Errorf("unchanged %d times, reported %s", unchanged, contents(reports))
		}
	})
}

// Between two polls nothing tells of a write but the file itself.
func TestWriterIsSeenBetweenPolls(t *testing.T) {
	o := Options{Debounce: time.Second, PollInterval: 10 * time.Second}
	inBubble(t, o, func(t *testing.T, path string, f *following) {
		time.Sleep(9800 * time.Millisecond)
		content := ""
		for range 10 { // from before the poll until 4 s after it
			content += "x"
			write(t, path, content)
			time.Sleep(500 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		reports, _ := f.snapshot()
		if len(reports) != 2 || last(f) != content {
			t.Errorf("reported %s, want the start and all ten bytes", contents(reports))
		}
	})
}
