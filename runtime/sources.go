package runtime

import (
	"context"
	"fmt"

	"github.com/wheelhouse-project/wheelhouse/runtime/filewatch"
	"github.com/wheelhouse-project/wheelhouse/runtime/server"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

const startTrigger = filewatch.TriggerStart

// sources are what the server shows.
func (m *Manager) sources() server.Sources {
	return server.Sources{
		Config:            m.configStatus,
		Controllers:       m.supervisor.Status,
		ControllerHandler: m.supervisor.Handler,
		Reloads:           m.reloads.newestFirst,
		Election:          m.elector.Status,
		Informers:         m.pool.Status,
		Checks:            m.checks,
		LogLevel:          m.logging.Verbosity,
		SetLogLevel:       m.logging.SetVerbosity,
		Metrics:           m.metrics.Handler(),
	}
}

// checks are the health checks: the lease, the caches of a standby, and every
// controller of this build.
func (m *Manager) checks() []server.Check {
	checks := []server.Check{
		{
			Name:  m.elector.Name(),
			Live:  true,
			Ready: true,
			Check: func(context.Context) error { return m.elector.Check(nil) },
		},
		{Name: "informer-sync", Ready: true, Check: m.checkInformers},
	}
	for _, d := range m.o.Descriptors {
		checks = append(checks, server.Check{
			Name:  d.Name(),
			Check: func(context.Context) error { return m.supervisor.Healthy(d.Name()) },
		})
	}
	return checks
}

// checkInformers fails while a cache is not ready to take over with.
func (m *Manager) checkInformers(context.Context) error {
	select {
	case <-m.discovery.Ready():
	default:
		return fmt.Errorf("the API server's resources are not known yet: %w", m.discovery.Err())
	}
	for _, informer := range m.pool.Status() {
		if !informer.Synced && !informer.Monitored {
			return fmt.Errorf("informer of %s has not synced: %s", informer.Resource, informer.LastError)
		}
	}
	return nil
}

// metricSources are what the metrics show.
func (m *Manager) metricSources() telemetry.Sources {
	return telemetry.Sources{
		Controllers: func() []telemetry.ControllerStatus {
			statuses := m.supervisor.Status()
			result := make([]telemetry.ControllerStatus, 0, len(statuses))
			for _, s := range statuses {
				result = append(result, telemetry.ControllerStatus{
					Name:     s.Name,
					State:    string(s.State),
					Running:  s.State == supervisor.Running,
					Restarts: s.Restarts,
					Panics:   m.panics.of(s.Name),
				})
			}
			return result
		},
		Informers:      m.pool.Status,
		FencedRequests: m.fence.Refused,
		Leader:         func() bool { return m.elector.Status().Leader },
	}
}

// stateChanged implements supervisor.Options.OnStateChange.
func (m *Manager) stateChanged(name string, from, to supervisor.State, reason string) {
	if from == supervisor.Stuck && to == supervisor.Stuck {
		m.fail(fmt.Errorf("controller %s does not end although leadership was lost: %s", name, reason))
		return
	}
	m.engineEvents.stateChanged(name, to, reason)
	if to == supervisor.Disabled {
		m.metrics.DropController(name)
	}
}
