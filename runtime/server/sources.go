package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/election"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Sources are where the server reads what it shows. Each function returns a
// snapshot that nobody changes afterwards, is cheap, and may be called by many
// requests at once. A nil function counts as one that returns nothing.
type Sources struct {
	// Config is the configuration that runs, and what became of newer files.
	Config func() ConfigStatus
	// Controllers are all controllers known to this build.
	Controllers func() []supervisor.Status
	// ControllerHandler is the debug handler of a running controller, by
	// canonical name; nil when it has none. It sees paths below
	// /debug/controllers/NAME, such as /graph.
	ControllerHandler func(name string) http.Handler
	// Reloads are the last reloads, newest first.
	Reloads func() []Reload
	// Election is this process's view of the lease.
	Election func() election.Status
	// Informers are all informers that run.
	Informers func() []informers.Status
	// Checks are the health checks, in the order in which they are listed.
	Checks func() []Check
	// LogLevel is the verbosity that is in force, 0 to 10.
	LogLevel func() int
	// SetLogLevel sets the verbosity until the configuration changes it again.
	// Its error is told to the caller.
	SetLogLevel func(level int) error
	// Metrics serves /metrics.
	Metrics http.Handler
}

// withDefaults returns s without a nil function, so that nobody has to ask.
func (s Sources) withDefaults() Sources {
	if s.Config == nil {
		s.Config = func() ConfigStatus { return ConfigStatus{} }
	}
	if s.Controllers == nil {
		s.Controllers = func() []supervisor.Status { return nil }
	}
	if s.ControllerHandler == nil {
		s.ControllerHandler = func(string) http.Handler { return nil }
	}
	if s.Reloads == nil {
		s.Reloads = func() []Reload { return nil }
	}
	if s.Election == nil {
		s.Election = func() election.Status { return election.Status{} }
	}
	if s.Informers == nil {
		s.Informers = func() []informers.Status { return nil }
	}
	if s.Checks == nil {
		s.Checks = func() []Check { return nil }
	}
	if s.LogLevel == nil {
		s.LogLevel = func() int { return 0 }
	}
	if s.SetLogLevel == nil {
		s.SetLogLevel = func(int) error { return errors.New("the log level cannot be changed here") }
	}
	if s.Metrics == nil {
		s.Metrics = http.NotFoundHandler()
	}
	return s
}

// ConfigStatus is the configuration that runs, and what became of newer files.
type ConfigStatus struct {
	// Running is nil until a configuration has been loaded.
	Running *config.Snapshot
	// PendingRestart are the differences between the file and what runs that
	// take effect at the next start of the process.
	PendingRestart []PendingRestart
	// Rejected is the newest file when it could not be used, else nil.
	Rejected *config.Rejection
}

// PendingRestart is a value that takes effect at the next start of the process.
type PendingRestart struct {
	// Path of the value, such as leaderElection.resourceName.
	Path    string `json:"path"`
	Running any    `json:"running"`
	Wanted  any    `json:"wanted"`
}

// Result of a reload.
type Result string

// The results of a reload.
const (
	// Applied is a file that runs now.
	Applied Result = "applied"
	// Rejected is a file that could not be used; what ran before goes on.
	Rejected Result = "rejected"
	// Applying is a file some of whose steps are not done yet.
	Applying Result = "applying"
	// Superseded is a file that a newer one replaced before all of it was done.
	Superseded Result = "superseded"
)

// Reload is the record of one reload.
type Reload struct {
	At time.Time
	// Trigger is why the file was read: start, event, poll or signal; or retry
	// when what could not be applied of it has been.
	Trigger string
	// Digest is the sha256 of the file's bytes, in hex.
	Digest string
	Result Result
	// Errors say why the file was rejected, or what could not be applied.
	Errors []schema.Error
	// Plan is what the reload did.
	Plan []supervisor.Step
	// Took is the time from reading the file to the end of its last step.
	Took time.Duration
}

// Check is one health check. It is part of /healthz always.
type Check struct {
	// Name as in /healthz/NAME: leaderElection, or a controller's name.
	Name string
	// Live makes it part of /livez: only a new process can help.
	Live bool
	// Ready makes it part of /readyz: this process cannot do its work, or take
	// over from another one, until it passes.
	Ready bool
	// Check returns why it fails. The reason is logged and never sent to
	// callers, who need not be authenticated. It must return soon after ctx ends.
	Check func(ctx context.Context) error
}
