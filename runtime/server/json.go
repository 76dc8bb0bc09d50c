package server

import (
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/election"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// The JSON forms that tools rely on. A time that is not known is null, a list
// without entries is [].

type controllerJSON struct {
	Name      string           `json:"name"`
	State     supervisor.State `json:"state"`
	Since     *time.Time       `json:"since"`
	Reason    string           `json:"reason"`
	Workers   workersJSON      `json:"workers"`
	Queue     queueJSON        `json:"queue"`
	Restarts  int              `json:"restarts"`
	LastError string           `json:"lastError"`
}

type workersJSON struct {
	Wanted  int `json:"wanted"`
	Running int `json:"running"`
	Busy    int `json:"busy"`
}

type queueJSON struct {
	Depth         int     `json:"depth"`
	OldestSeconds float64 `json:"oldestSeconds"`
}

func newControllerJSON(c supervisor.Status) controllerJSON {
	return controllerJSON{
		Name:      c.Name,
		State:     c.State,
		Since:     known(c.Since),
		Reason:    c.Reason,
		Workers:   workersJSON{Wanted: c.Work.Wanted, Running: c.Work.Running, Busy: c.Work.Busy},
		Queue:     queueJSON{Depth: c.Work.Depth, OldestSeconds: seconds(c.Work.Oldest)},
		Restarts:  c.Restarts,
		LastError: lastError(c),
	}
}

// lastError of the controller as a whole, else of one of its reconciles.
func lastError(c supervisor.Status) string {
	if c.LastError != "" {
		return c.LastError
	}
	return c.Work.LastError
}

type controllerDetailJSON struct {
	controllerJSON
	// LongestSeconds is how long the reconcile that has run longest has run.
	LongestSeconds     float64        `json:"longestSeconds"`
	LastReconcileError string         `json:"lastReconcileError"`
	Informers          []string       `json:"informers"`
	Config             schema.Section `json:"config"`
	// Debug tells whether the controller serves something below its path.
	Debug bool `json:"debug"`
	// Summary is what the controller says of itself.
	Summary any `json:"summary,omitempty"`
}

type reloadJSON struct {
	At          time.Time         `json:"at"`
	Trigger     string            `json:"trigger"`
	Digest      string            `json:"digest"`
	Result      Result            `json:"result"`
	Errors      []errorJSON       `json:"errors"`
	Plan        []supervisor.Step `json:"plan"`
	TookSeconds float64           `json:"tookSeconds"`
}

func newReloadJSON(r Reload) reloadJSON {
	return reloadJSON{
		At:          r.At,
		Trigger:     r.Trigger,
		Digest:      r.Digest,
		Result:      r.Result,
		Errors:      newErrorsJSON(r.Errors),
		Plan:        listed(r.Plan),
		TookSeconds: seconds(r.Took),
	}
}

type errorJSON struct {
	// Source is set when the value does not come from the file.
	Source  string `json:"source,omitempty"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path"`
	Message string `json:"message"`
}

func newErrorsJSON(errs []schema.Error) []errorJSON {
	list := make([]errorJSON, 0, len(errs))
	for _, err := range errs {
		e := errorJSON{Line: err.Origin.Line, Column: err.Origin.Column, Path: err.Path, Message: err.Message}
		if err.Origin.Line == 0 {
			e.Source = err.Origin.String()
		}
		list = append(list, e)
	}
	return list
}

type configStatusJSON struct {
	Digest         string                   `json:"digest"`
	LoadedAt       *time.Time               `json:"loadedAt"`
	Path           string                   `json:"path"`
	Origins        map[string]schema.Origin `json:"origins"`
	PendingRestart []PendingRestart         `json:"pendingRestart"`
	Rejected       *rejectedJSON            `json:"rejected"`
}

type rejectedJSON struct {
	Digest string      `json:"digest"`
	At     time.Time   `json:"at"`
	Errors []errorJSON `json:"errors"`
}

func newConfigStatusJSON(c ConfigStatus) configStatusJSON {
	running := c.Running
	if running == nil {
		running = &config.Snapshot{}
	}
	status := configStatusJSON{
		Digest:         running.Digest,
		LoadedAt:       known(running.LoadedAt),
		Path:           running.Path,
		Origins:        running.Origins,
		PendingRestart: listed(c.PendingRestart),
	}
	if status.Origins == nil {
		status.Origins = map[string]schema.Origin{}
	}
	if c.Rejected != nil {
		status.Rejected = &rejectedJSON{Digest: c.Rejected.Digest, At: c.Rejected.At, Errors: newErrorsJSON(c.Rejected.Errors)}
	}
	return status
}

type leaderJSON struct {
	Leader         bool       `json:"leader"`
	Identity       string     `json:"identity"`
	Holder         string     `json:"holder"`
	AcquiredAt     *time.Time `json:"acquiredAt"`
	RenewedAt      *time.Time `json:"renewedAt"`
	Transitions    int        `json:"transitions"`
	FencedRequests int64      `json:"fencedRequests"`
}

func newLeaderJSON(e election.Status) leaderJSON {
	return leaderJSON{
		Leader:         e.Leader,
		Identity:       e.Identity,
		Holder:         e.Holder,
		AcquiredAt:     known(e.AcquiredAt),
		RenewedAt:      known(e.RenewedAt),
		Transitions:    e.Transitions,
		FencedRequests: e.FencedRequests,
	}
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// seconds of d, to the millisecond. It is one division: Duration.Seconds adds
// two numbers, which makes 1.2429999999999999 of 1243 ms.
func seconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}

func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
