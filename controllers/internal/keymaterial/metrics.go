package keymaterial

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
)

// metrics of one source, used with its mutex held. Their vectors are shared by
// all sources of the process. There are series only while the files are followed:
// a source that never gets so far would leave them behind.
type metrics struct {
	labels             prometheus.Labels
	rejected, notAfter *prometheus.GaugeVec
	following          bool
}

func newMetrics(env controller.Env, material string) (*metrics, error) {
	labels := []string{"controller", "material"}
	rejected, err := telemetry.Register(env.Metrics, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "wheelhouse_key_material_rejected",
		Help: "1 while the files of certificates and keys cannot be used, so that what was loaded before stays in use.",
	}, labels))
	if err != nil {
		return nil, fmt.Errorf("register metrics of key material: %w", err)
	}
	notAfter, err := telemetry.Register(env.Metrics, prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "wheelhouse_key_material_expiration_timestamp_seconds",
		Help: "When the certificates in use expire, in seconds since 1970; of a bundle, the last of them.",
	}, labels))
	if err != nil {
		return nil, fmt.Errorf("register metrics of key material: %w", err)
	}
	return &metrics{
		labels:   prometheus.Labels{"controller": env.Name, "material": material},
		rejected: rejected,
		notAfter: notAfter,
	}, nil
}

// begin makes the series.
func (m *metrics) begin(rejected bool, notAfter time.Time) {
	m.following = true
	m.setRejected(rejected)
	m.loaded(notAfter)
}

func (m *metrics) setRejected(rejected bool) {
	if !m.following {
		return
	}
	value := 0.0
	if rejected {
		value = 1
	}
	m.rejected.With(m.labels).Set(value)
}

func (m *metrics) loaded(notAfter time.Time) {
	if !m.following {
		return
	}
	if notAfter.IsZero() {
		m.notAfter.Delete(m.labels)
		return
	}
	m.notAfter.With(m.labels).Set(float64(notAfter.Unix()))
}

// end takes the series away, with the controller.
func (m *metrics) end() {
	m.following = false
	m.rejected.Delete(m.labels)
	m.notAfter.Delete(m.labels)
}
