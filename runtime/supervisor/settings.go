package supervisor

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/features"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// rule says what a change of a setting does. The first rule that fits holds.
type rule struct {
	// path of a leaf, or of everything below it.
	path   string
	action Action
	effect string
	// keep gives effective the value that the process runs with. Set for Pending.
	keep func(effective, running *schema.ControllerManagerConfiguration)
}

const needsProcess = "holds from the next start of the process"

// rules cover every setting outside of the controllers' sections.
func rules() []rule {
	type config = schema.ControllerManagerConfiguration
	pending := func(path string, keep func(effective, running *config)) rule {
		return rule{path: path, action: Pending, effect: needsProcess, keep: keep}
	}
	live := func(path, effect string) rule { return rule{path: path, action: Live, effect: effect} }
	return []rule{
		pending("cluster.name", func(e, r *config) { e.Cluster.Name = r.Cluster.Name }),
		pending("cluster.kubeconfig", func(e, r *config) { e.Cluster.Kubeconfig = r.Cluster.Kubeconfig }),
		pending("cluster.useServiceAccountCredentials", func(e, r *config) {
			e.Cluster.UseServiceAccountCredentials = r.Cluster.UseServiceAccountCredentials
		}),
		pending("cluster.client.contentType", func(e, r *config) {
			e.Cluster.Client.ContentType = r.Cluster.Client.ContentType
		}),
		live("cluster.client", "limits the clients at once"),
		live("cluster", "restarts the controllers that read it"),
		pending("leaderElection.enabled", func(e, r *config) { e.LeaderElection.Enabled = r.LeaderElection.Enabled }),
		pending("leaderElection.resourceName", func(e, r *config) {
			e.LeaderElection.ResourceName = r.LeaderElection.ResourceName
		}),
		pending("leaderElection.resourceNamespace", func(e, r *config) {
			e.LeaderElection.ResourceNamespace = r.LeaderElection.ResourceNamespace
		}),
		live("leaderElection.leaseDuration", "the same lease is held on with the new timing"),
		live("leaderElection.renewDeadline", "the same lease is held on with the new timing"),
		live("leaderElection.retryPeriod", "the same lease is held on with the new timing"),
		live("leaderElection.standby", "holds at once while this process does not lead"),
		live("leaderElection.releaseOnExit", "holds at once"),
		live("server.bindAddress", "a new listener opens before the old one drains"),
		live("server.port", "a new listener opens before the old one drains"),
		live("server", "holds at once"),
		live("logging", "holds at once"),
		live("reload", "holds at once"),
		live("featureGates", "restarts the controllers that read it"),
		live("controllers.startInterval", "holds for starts from now on"),
	}
}

// ruleFor returns the rule that holds for the setting of that path.
func ruleFor(path string) (rule, bool) {
	for _, r := range rules() {
		if path == r.path || strings.HasPrefix(path, r.path+".") {
			return r, true
		}
	}
	return rule{}, false
}

// engineSettings is the configuration without the controllers' sections.
type engineSettings struct {
	Cluster        schema.Cluster        `json:"cluster"`
	LeaderElection schema.LeaderElection `json:"leaderElection"`
	Server         schema.Server         `json:"server"`
	Logging        schema.Logging        `json:"logging"`
	Reload         schema.Reload         `json:"reload"`
	FeatureGates   map[string]bool       `json:"featureGates"`
	Controllers    schema.Controllers    `json:"controllers"`
}

func settingsOf(cfg *schema.ControllerManagerConfiguration) engineSettings {
	return engineSettings{
		Cluster:        cfg.Cluster,
		LeaderElection: cfg.LeaderElection,
		Server:         cfg.Server,
		Logging:        cfg.Logging,
		Reload:         cfg.Reload,
		FeatureGates:   cfg.FeatureGates,
		Controllers:    schema.Controllers{StartInterval: cfg.Controllers.StartInterval},
	}
}

// settingSteps are the steps for settings that differ, by path.
func settingSteps(from, to *schema.ControllerManagerConfiguration) []Step {
	var steps []Step
	for _, c := range diff(settingsOf(from), settingsOf(to)) {
		if gate, ok := strings.CutPrefix(c.path, gatePrefix); ok && slices.Contains(clientGates(), gate) {
			continue
		}
		r, ok := ruleFor(c.path)
		if !ok {
			r = rule{action: Pending, effect: needsProcess}
		}
		steps = append(steps, Step{Setting: c.path, Action: r.action, Reason: c.String() + ", " + r.effect})
	}
	for _, p := range pendingGates(from, to) {
		steps = append(steps, Step{Setting: p.Path, Action: Pending, Reason: change{p.Path, p.Running, p.Wanted}.String() + ", " + needsProcess})
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return strings.Compare(a.Setting, b.Setting) })
	return steps
}

// PendingSetting is a setting whose wanted value takes effect at the next start of the process.
type PendingSetting struct {
	Path string `json:"path"`
	// Running and Wanted are the values as they are in JSON.
	Running any `json:"running"`
	Wanted  any `json:"wanted"`
}

// KeepPending returns wanted with those settings that need a restart of the
// process as they are in running, and these settings by path. Neither argument is changed.
func KeepPending(running, wanted *schema.ControllerManagerConfiguration) (*schema.ControllerManagerConfiguration, []PendingSetting) {
	var pending []PendingSetting
	effective := wanted.DeepCopy()
	for _, c := range diff(settingsOf(running), settingsOf(wanted)) {
		if r, ok := ruleFor(c.path); ok && r.keep != nil {
			r.keep(effective, running)
			pending = append(pending, PendingSetting{Path: c.path, Running: c.from, Wanted: c.to})
		}
	}
	for _, p := range pendingGates(running, wanted) {
		if effective.FeatureGates == nil {
			effective.FeatureGates = map[string]bool{}
		}
		effective.FeatureGates[strings.TrimPrefix(p.Path, gatePrefix)] = p.Running.(bool)
		pending = append(pending, p)
	}
	if len(pending) == 0 {
		return wanted, nil
	}
	slices.SortFunc(pending, func(a, b PendingSetting) int { return strings.Compare(a.Path, b.Path) })
	return effective, pending
}

const gatePrefix = "featureGates."

// pendingGates are the feature gates of client-go, read once in the life of a
// process, that are on in one configuration and off in the other.
func pendingGates(running, wanted *schema.ControllerManagerConfiguration) []PendingSetting {
	var pending []PendingSetting
	for _, gate := range clientGates() {
		before, after := schema.FeatureEnabled(running, gate), schema.FeatureEnabled(wanted, gate)
		if before != after {
			pending = append(pending, PendingSetting{Path: gatePrefix + gate, Running: before, Wanted: after})
		}
	}
	return pending
}

// clientGates names the feature gates that client-go owns.
func clientGates() []string {
	names := gateNames{}
	if err := features.AddFeaturesToExistingFeatureGates(names); err != nil {
		panic(err) //nolint:forbidigo // gateNames.Add returns none
	}
	return slices.Sorted(maps.Keys(names))
}

// gateNames implements features.Registry.
type gateNames map[string]bool

func (g gateNames) Add(specs map[features.Feature]features.FeatureSpec) error {
	for name := range specs {
		g[string(name)] = true
	}
	return nil
}
