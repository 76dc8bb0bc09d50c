package filewatch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// resources that a watcher could leave behind.
type resources struct{ files, watches, goroutines int }

// held counts this process's open files, inotify watches and goroutines.
func held(t testing.TB) resources {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	r := resources{files: len(entries), goroutines: runtime.NumGoroutine()}
	for _, e := range entries {
		info, err := os.ReadFile("/proc/self/fdinfo/" + e.Name())
		if os.IsNotExist(err) {
			continue // the directory listing's own
		}
		must(t, err)
		r.watches += bytes.Count(info, []byte("inotify wd:"))
	}
	return r
}

// nothingLeft checks files and watches at once, since Run promises it for the
// moment it returns. A goroutine that has told its owner of its end is counted
// for an instant longer. There may be fewer than before, those of earlier tests.
func nothingLeft(t testing.TB, before resources) {
	t.Helper()
	after := held(t)
	for end := time.Now().Add(time.Minute); after.goroutines > before.goroutines && time.Now().Before(end); {
		runtime.Gosched()
		after.goroutines = runtime.NumGoroutine()
	}
	if after.files != before.files || after.watches != before.watches || after.goroutines > before.goroutines {
		t.Errorf("after Run %+v are held, want %+v as before", after, before)
	}
}

// 500 swaps at 20 a second: the last one wins, none that stays is missed, and
// nothing is left over. Not parallel, since it counts the
// process's resources.
func TestFiveHundredSwapsAtTwentyASecond(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 35 seconds of real time")
	}
	before := held(t)
	c := &configMap{dir: t.TempDir()}
	c.update(t, map[string]string{"config.yaml": "0"})
	inPlace := filepath.Join(t.TempDir(), "f")
	write(t, inPlace, "0")

	swapped := follow(t, Options{Paths: []string{c.path()}})
	written := follow(t, Options{Paths: []string{inPlace}})
	polled := follow(t, Options{Paths: []string{c.path()}, PollOnly: true, PollInterval: 50 * time.Millisecond})
	all := []*following{swapped, written, polled}
	for _, f := range all {
		f.untilLast("0")
	}
	running := held(t)

	const swaps, every = 500, 50
	tick := time.NewTicker(time.Second / 20)
	defer tick.Stop()
	var staying []string
	for i := 1; i <= swaps; i++ {
		<-tick.C
		content := fmt.Sprint(i)
		c.update(t, map[string]string{"config.yaml": content})
		write(t, inPlace, content)
		if i%every == 0 {
			staying = append(staying, content)
			for _, f := range all {
				f.untilLast(content)
			}
		}
	}
	for _, f := range all {
		f.settle()
	}
	after := held(t)
	for end := time.Now().Add(time.Minute); time.Now().Before(end) && (after.files != running.files || after.watches != running.watches); {
		runtime.Gosched()
		after = held(t)
	}
	if after.files != running.files || after.watches != running.watches {
		t.Errorf("after %d swaps %+v are held, want %+v as before", swaps, after, running)
	}

	for i, f := range all {
		seen := map[string]bool{}
		reports := f.settle()
		for _, r := range reports {
			seen[state(r.Files[0])] = true
		}
		for _, content := range staying {
			if !seen[content] {
				t.Errorf("watcher %d: content %s stayed and was not reported", i, content)
			}
		}
		for content := range seen {
			if strings.HasPrefix(content, "error") {
				t.Errorf("watcher %d: %s reported, though there always was a file", i, content)
			}
		}
		t.Logf("watcher %d: %d reports", i, len(reports))
		// In a stream of swaps some are reported, not only those that stay.
		if f != written && len(reports) < 2*len(staying) {
			t.Errorf("watcher %d: only %d reports of %d swaps", i, len(reports), swaps)
		}
		f.stop()
	}
	nothingLeft(t, before)
}

func TestNothingIsLeftAfterRun(t *testing.T) {
	before := held(t)
	for range 20 {
		c := &configMap{dir: t.TempDir()}
		c.update(t, map[string]string{"config.yaml": "1"})
		f := follow(t, Options{Paths: []string{c.path(), c.dir + "/missing", c.dir}, Debounce: time.Hour})
		f.untilLast("1")
		c.update(t, map[string]string{"config.yaml": "2"}) // still pending at the end
		f.stop()
	}
	nothingLeft(t, before)
}

// The debounce is waited for once, though a swap leads to directories that were not watched before.
func TestChangeIsReportedSoonAfterDebounce(t *testing.T) {
	const debounce = 4 * time.Second
	c := &configMap{dir: t.TempDir()}
	c.update(t, map[string]string{"config.yaml": "0"})
	f := follow(t, Options{Paths: []string{c.path()}, Debounce: debounce})
	f.untilLast("0")
	for i := 1; i <= 2; i++ {
		content := fmt.Sprint(i)
		c.update(t, map[string]string{"config.yaml": content})
		start := time.Now()
		f.untilLast(content)
		if took := time.Since(start); took >= 2*debounce {
			t.Errorf("reported after %s, want one debounce of %s", took, debounce)
		}
	}
}
