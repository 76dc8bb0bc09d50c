package work_test

import (
	"testing"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/work"
)

func TestSoonestIgnoresWhatIsNoWait(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {1, 0, 1}, {1, 2, 1}, {2, 1, 1}} {
		if got := work.Soonest(c.a, c.b); got != c.want {
			t.Errorf("of %d and %d: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
