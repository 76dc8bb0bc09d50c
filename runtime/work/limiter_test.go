package work

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimiter[int](200*time.Millisecond, time.Second)
		for i, want := range []time.Duration{200, 400, 800, 1000, 1000} {
			if got := l.When(0); got != want*time.Millisecond {
				t.Errorf("wait %d is %s, want %s", i, got, want*time.Millisecond)
			}
		}
		l.Forget(0)
		if got := l.When(0); got != 200*time.Millisecond {
			t.Errorf("the wait after a success is %s", got)
		}
		// Many keys that fail together, as when the API server does, come back one by one.
		var last time.Duration
		for key := range 300 {
			last = l.When(key + 1)
		}
		if want := (300 + 6 - retryBurst) * time.Second / retriesPerSecond; last < want-time.Millisecond || last > want+time.Millisecond {
			t.Errorf("the last of many keys waits for %s, want %s", last, want)
		}
	})
}
