package servicepods_test

import (
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/servicepods"
)

func TestPace(t *testing.T) {
	c := testingclock.NewFakePassiveClock(time.Now())
	pace := servicepods.NewPace(c)
	web := cache.NewObjectName("a", "web")
	pass := func(d time.Duration) { c.SetTime(c.Now().Add(d)) }
	left := func(what string, want time.Duration) {
		t.Helper()
		if got := pace.Left(web); got != want {
			t.Errorf("%s: %s left, want %s", what, got, want)
		}
	}
	left("never reconciled", 0)
	end := pace.Begin(web)
	left("during the first", 0)
	pass(4 * time.Millisecond)
	end()
	left("after 4 ms", 40*time.Millisecond)
	pass(25 * time.Millisecond)
	left("a while later", 15*time.Millisecond)
	pass(25 * time.Millisecond)
	left("later", 0)
	end = pace.Begin(web)
	left("during one that will take as long", 44*time.Millisecond)
	pass(time.Second)
	end()
	left("after a second", 100*time.Millisecond)
	pass(100 * time.Millisecond)
	end = pace.Begin(web)
	left("during one after a slow one", 100*time.Millisecond)
	pace.Forget(web)
	end()
	left("forgotten", 0)
}
