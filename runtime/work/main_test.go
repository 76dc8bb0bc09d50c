package work

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is for tests that provoke errors and do not look at the log.
var quiet = slog.New(slog.DiscardHandler)
