package runtime

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/server"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// partsRetry is how long after a part of the configuration could not be applied
// it is tried again, as with a port that was still in use.
const partsRetry = 5 * time.Second

// retryTrigger is that of the record which says that nothing is left to be tried again.
const retryTrigger = "retry"

// followReloads finishes current, and applies what the source finds.
func (m *Manager) followReloads(ctx context.Context, current *reload) {
	unapplied := current.unapplied
	again := m.retry(unapplied)
	for {
		var settled <-chan struct{}
		if current != nil {
			settled = current.settled
		}
		select {
		case <-ctx.Done():
			return
		case <-settled:
			m.finish(current, server.Applied)
			current = nil
		case <-again:
			unapplied = m.applyAgain(unapplied)
			again = m.retry(unapplied)
		case update := <-m.source.Updates():
			if update.Rejection != nil {
				m.reject(update.Rejection)
				continue
			}
			if current != nil {
				m.finish(current, current.replaced())
			}
			current = m.apply(update.Snapshot)
			unapplied = current.unapplied
			again = m.retry(unapplied)
		}
	}
}

// retry delivers when parts are to be applied again; never when there are none.
func (m *Manager) retry(unapplied []part) <-chan time.Time {
	if len(unapplied) == 0 {
		return nil
	}
	return m.clock.After(partsRetry)
}

// applyAgain returns the parts that still cannot be applied.
func (m *Manager) applyAgain(unapplied []part) []part {
	effective, _ := m.supervisor.Effective()
	unapplied = slices.DeleteFunc(unapplied, func(p part) bool {
		err := p.apply(effective)
		if err != nil {
			m.log.Debug("a part of the configuration still cannot be applied", "path", p.path, "err", err)
		}
		return err == nil
	})
	if len(unapplied) == 0 {
		now := m.clock.Now()
		status := m.configStatus()
		m.metrics.ReloadApplied(now, status.Rejected == nil)
		m.log.Info("what could not be applied of the configuration is applied now")
		m.reloads.add(server.Reload{At: now, Trigger: retryTrigger, Digest: status.Running.Digest, Result: server.Applied})
	}
	return unapplied
}

// reload is one that is being applied.
type reload struct {
	record  server.Reload
	began   time.Time
	settled <-chan struct{}
	// unapplied are parts that stay as they were.
	unapplied []part
}

// replaced is the result when a newer configuration has come.
func (r *reload) replaced() server.Result {
	select {
	case <-r.settled:
		return server.Applied
	default:
		return server.Superseded
	}
}

// apply makes snapshot the desired state of every part. The controllers follow
// until settled.
func (m *Manager) apply(snapshot *config.Snapshot) *reload {
	began := m.clock.Now()
	plan, settled := m.supervisor.Apply(snapshot.Config)
	effective, pending := m.supervisor.Effective()
	r := &reload{
		began:   began,
		settled: settled,
		record:  server.Reload{At: began, Trigger: snapshot.Trigger, Digest: snapshot.Digest, Plan: plan},
	}
	m.show(snapshot, effective, pending)
	for _, warning := range snapshot.Warnings {
		m.log.Warn("a value of the configuration has no effect", "at", warning.Origin.String(), "path", warning.Path, "why", warning.Message)
	}
	for _, p := range m.parts() {
		if err := p.apply(effective); err != nil {
			m.log.Error("a part of the configuration could not be applied and stays as it was, it is tried again", "path", p.path, "err", err)
			r.unapplied = append(r.unapplied, p)
			for _, err := range unjoined(err) {
				r.record.Errors = append(r.record.Errors,
					schema.Error{Origin: originOf(snapshot.Origins, p.path, err), Path: p.path, Message: err.Error()})
			}
		}
	}
	for _, gate := range schema.FeatureGates() {
		m.metrics.SetFeature(gate.Name, string(gate.Stage), schema.FeatureEnabled(effective, gate.Name))
	}
	m.reloads.begin(r.record)
	return r
}

// part of the engine that follows a part of the configuration.
type part struct {
	path  string
	apply func(effective *schema.ControllerManagerConfiguration) error
}

func (m *Manager) parts() []part {
	type config = schema.ControllerManagerConfiguration
	return []part{
		{"logging", func(c *config) error { return m.logging.Apply(c.Logging) }},
		{"cluster.client", func(c *config) error {
			m.clients.SetLimits(c.Cluster.Client.QPS, c.Cluster.Client.Burst)
			return nil
		}},
		{"reload", func(c *config) error {
			m.credentialFiles.apply(c.Reload)
			return nil
		}},
		{"leaderElection", func(c *config) error { return m.elector.Apply(c.LeaderElection) }},
		{"server", func(c *config) error { return m.server.Apply(c.Server) }},
	}
}

// unjoined are the errors that err was joined from. What wraps a join stays
// whole: it says more than the parts.
func unjoined(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, part := range joined.Unwrap() {
		all = append(all, unjoined(part)...)
	}
	return all
}

// originOf is where the value that err begins with comes from, else the first
// value below path that has a place in the file.
func originOf(origins map[string]schema.Origin, path string, err error) (first schema.Origin) {
	for at, origin := range origins {
		switch {
		case origin.Line == 0 || !strings.HasPrefix(at, path+"."):
		case beginsWith(err.Error(), at):
			return origin
		case first.Line == 0 || origin.Line < first.Line:
			first = origin
		}
	}
	return first
}

// beginsWith tells whether path as a whole is the first word of message.
func beginsWith(message, path string) bool {
	rest, found := strings.CutPrefix(message, path)
	return found && (rest == "" || strings.ContainsRune(" ,:", rune(rest[0])))
}

// configStatus is what /configz tells.
func (m *Manager) configStatus() server.ConfigStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}

// show makes snapshot what /configz tells.
func (m *Manager) show(snapshot *config.Snapshot, effective *schema.ControllerManagerConfiguration, pending []supervisor.PendingSetting) {
	running := *snapshot
	running.Config = effective
	status := server.ConfigStatus{Running: &running}
	for _, p := range pending {
		status.PendingRestart = append(status.PendingRestart, server.PendingRestart(p))
		m.log.Warn("a setting takes effect at the next start of the process", "path", p.Path, "running", p.Running, "wanted", p.Wanted)
	}
	m.metrics.SetPendingRestart(len(pending))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status = status
}

// finish records a reload.
func (m *Manager) finish(r *reload, result server.Result) {
	r.record.Result = result
	r.record.Took = m.clock.Since(r.began)
	m.reloads.add(r.record)
	if result == server.Superseded {
		m.metrics.ReloadSuperseded()
		m.log.Info("configuration superseded by a newer one", "digest", r.record.Digest)
		return
	}
	if len(r.record.Errors) > 0 {
		// What could not be applied must be seen by whoever watches reloads.
		m.metrics.ReloadRejected()
	} else {
		// A newer file may have been rejected while this one was being applied.
		m.metrics.ReloadApplied(m.clock.Now(), m.configStatus().Rejected == nil)
	}
	m.log.Info("configuration applied", "digest", r.record.Digest, "trigger", r.record.Trigger,
		"steps", len(r.record.Plan), "errors", len(r.record.Errors), "took", r.record.Took)
	if r.record.Trigger != startTrigger {
		m.engineEvents.reloaded(r.record)
	}
}

// reject keeps what runs and says why.
func (m *Manager) reject(rejection *config.Rejection) {
	m.mu.Lock()
	status := m.status
	status.Rejected = rejection
	m.status = status
	m.mu.Unlock()
	m.metrics.ReloadRejected()
	for _, err := range rejection.Errors {
		m.log.Error("configuration rejected, the last good one stays in force", "digest", rejection.Digest, "at", err.Origin.String(), "path", err.Path, "err", err.Message)
	}
	m.engineEvents.rejected(rejection)
	m.reloads.add(server.Reload{
		At: rejection.At, Trigger: rejection.Trigger, Digest: rejection.Digest,
		Result: server.Rejected, Errors: rejection.Errors, Took: m.clock.Since(rejection.At),
	})
}

// reloadsKept is how many reloads are remembered.
const reloadsKept = 50

// reloadLog remembers the last reloads, and the one under way.
type reloadLog struct {
	now func() time.Time

	mu       sync.Mutex
	records  []server.Reload
	underWay *server.Reload
}

func newReloadLog(now func() time.Time) *reloadLog { return &reloadLog{now: now} }

// begin shows r as under way until it is added.
func (l *reloadLog) begin(r server.Reload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.Result = server.Applying
	l.underWay = &r
}

func (l *reloadLog) add(r server.Reload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = inserted(l.records, r)
	l.records = l.records[:min(len(l.records), reloadsKept)]
	if l.underWay != nil && l.underWay.At.Equal(r.At) {
		l.underWay = nil
	}
}

// inserted returns a copy of records, which are newest first, with r at its
// place: a file may be rejected while one that came before it is being applied.
func inserted(records []server.Reload, r server.Reload) []server.Reload {
	at, _ := slices.BinarySearchFunc(records, r.At, func(record server.Reload, at time.Time) int { return at.Compare(record.At) })
	return slices.Insert(slices.Clone(records), at, r)
}

// newestFirst returns the remembered reloads. Took of the one under way is the
// time until now.
func (l *reloadLog) newestFirst() []server.Reload {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underWay == nil {
		return l.records
	}
	current := *l.underWay
	current.Took = l.now().Sub(current.At)
	return inserted(l.records, current)
}
