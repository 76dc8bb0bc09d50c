package server

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/election"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// overviewReloads are shown on the status page.
const overviewReloads = 5

// pageData is what the pages show.
type pageData struct {
	Title, Path     string
	Version         string
	Started, Now    time.Time
	Cluster, Lease  string
	Config          *config.Snapshot
	Rejected        *config.Rejection
	PendingRestart  []PendingRestart
	Elects          bool
	Election        election.Status
	Server          Status
	Failing         []failingCheck
	Counts          []stateCount
	Active, Resting []supervisor.Status
	Controller      *controllerDetailJSON
	Reloads         []Reload
	MoreReloads     int
	Informers       []informers.Status
}

type failingCheck struct{ Name, Reason string }

type stateCount struct {
	State supervisor.State
	Count int
}

func (s *Server) pageData(r *http.Request, p page) pageData {
	cfg := s.sources.Config()
	d := pageData{
		Title:          p.title,
		Path:           p.path,
		Version:        s.version,
		Started:        s.started,
		Now:            time.Now(),
		Config:         cfg.Running,
		Rejected:       cfg.Rejected,
		PendingRestart: cfg.PendingRestart,
		Elects:         true,
		Election:       s.sources.Election(),
		Server:         s.Status(),
		Failing:        s.failing(r),
		Reloads:        s.sources.Reloads(),
		Informers:      s.sources.Informers(),
	}
	if d.Config != nil && d.Config.Config != nil {
		elections := d.Config.Config.LeaderElection
		d.Cluster = d.Config.Config.Cluster.Name
		d.Elects = elections.Enabled
		d.Lease = elections.ResourceNamespace + "/" + elections.ResourceName
	}
	if p.path == overviewPage.path && len(d.Reloads) > overviewReloads {
		d.MoreReloads = len(d.Reloads) - overviewReloads
		d.Reloads = d.Reloads[:overviewReloads]
	}
	d.addControllers(s.sources.Controllers())
	if name := chi.URLParam(r, "name"); name != "" {
		if c, ok := s.find(name); ok {
			detail := s.controllerDetail(c)
			d.Title, d.Controller = name, &detail
		}
	}
	return d
}

// failing are the health checks that fail now. Callers of pages may be told why.
func (s *Server) failing(r *http.Request) []failingCheck {
	var failing []failingCheck
	for _, check := range s.sources.Checks() {
		if err := check.run(r.Context()); err != nil {
			failing = append(failing, failingCheck{Name: check.Name, Reason: err.Error()})
		}
	}
	return failing
}

// stateOrder puts what needs a look first.
var stateOrder = []supervisor.State{
	supervisor.Stuck, supervisor.Failed, supervisor.Waiting, supervisor.Stopping, supervisor.Starting,
	supervisor.Running, supervisor.Standby, supervisor.Unavailable, supervisor.Disabled,
}

func rank(state supervisor.State) int { return slices.Index(stateOrder, state) }

func resting(state supervisor.State) bool {
	return state == supervisor.Unavailable || state == supervisor.Disabled
}

func (d *pageData) addControllers(all []supervisor.Status) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b supervisor.Status) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), cmp.Compare(a.Name, b.Name))
	})
	for _, c := range all {
		if resting(c.State) {
			d.Resting = append(d.Resting, c)
		} else {
			d.Active = append(d.Active, c)
		}
		if last := len(d.Counts) - 1; last >= 0 && d.Counts[last].State == c.State {
			d.Counts[last].Count++
		} else {
			d.Counts = append(d.Counts, stateCount{State: c.State, Count: 1})
		}
	}
}

// Role of this process, in words.
func (d pageData) Role() string {
	switch {
	case !d.Elects:
		return "Running without election"
	case d.Election.Leader:
		return "Leading"
	default:
		return "Standing by"
	}
}

// Problems is how many things need a look.
func (d pageData) Problems() int {
	n := len(d.Failing)
	if d.Rejected != nil {
		n++
	}
	for _, c := range d.Counts {
		if tone(c.State) == toneBad && len(d.Failing) == 0 {
			n += c.Count
		}
	}
	return n
}

// Changed are the values that are not defaults, by path.
func (d pageData) Changed() []origin {
	if d.Config == nil {
		return nil
	}
	var list []origin
	for path, o := range d.Config.Origins {
		if o.Layer != "default" {
			list = append(list, origin{Path: path, Origin: o})
		}
	}
	slices.SortFunc(list, func(a, b origin) int { return cmp.Compare(a.Path, b.Path) })
	return list
}

type origin struct {
	Path   string
	Origin schema.Origin
}

// The tones of a state: how a page colours it, beside its name and its shape.
const (
	toneGood  = "good"
	toneBusy  = "busy"
	toneWarn  = "warn"
	toneBad   = "bad"
	toneQuiet = "quiet"
)

func tone(state supervisor.State) string {
	switch state {
	case supervisor.Running:
		return toneGood
	case supervisor.Starting, supervisor.Stopping:
		return toneBusy
	case supervisor.Waiting:
		return toneWarn
	case supervisor.Failed, supervisor.Stuck:
		return toneBad
	default:
		return toneQuiet
	}
}

func resultTone(result Result) string {
	switch result {
	case Applied:
		return toneGood
	case Rejected:
		return toneBad
	case Applying:
		return toneBusy
	default:
		return toneQuiet
	}
}

// resultPicture is that of a state that is like the result.
func resultPicture(result Result) string {
	switch result {
	case Applied:
		return "running"
	case Rejected:
		return "failed"
	case Applying:
		return "starting"
	default:
		return "disabled"
	}
}

// barWidth is the width of the bar of workers in the pages, in pixels.
const barWidth = 56

// share of the bar that stands for part of whole.
func share(part, whole int) int {
	if whole <= 0 || part <= 0 {
		return 0
	}
	return max(1, min(part, whole)*barWidth/whole)
}

func plural[N int | int64](n N, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}
	return fmt.Sprintf("%d %s", n, many)
}

// actionName is what people call an action.
func actionName(a supervisor.Action) string {
	if a == supervisor.Pending {
		return "restart needed"
	}
	return string(a)
}

// span says a duration as people do: in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d d", int(d.Hours()/24))
	}
}
