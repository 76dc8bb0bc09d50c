package supervisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// settingPaths returns the path of every setting in the configuration's type,
// found independently of any value. Maps count as one setting.
func settingPaths(t reflect.Type, path string) []string {
	var paths []string
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue // TypeMeta is no setting, the sections are the controllers'
		}
		below := strings.TrimPrefix(path+"."+name, ".")
		if field.Type.Kind() == reflect.Struct && field.Type.PkgPath() == t.PkgPath() {
			paths = append(paths, settingPaths(field.Type, below)...)
		} else {
			paths = append(paths, below)
		}
	}
	return paths
}

func allSettings() []string {
	return settingPaths(reflect.TypeFor[schema.ControllerManagerConfiguration](), "")
}

// altered returns a copy of cfg in which the setting of that path has another value.
func altered(t *testing.T, cfg *schema.ControllerManagerConfiguration, path string) *schema.ControllerManagerConfiguration {
	t.Helper()
	copied := cfg.DeepCopy()
	value := reflect.ValueOf(copied).Elem()
	for _, name := range strings.Split(path, ".") {
		value = fieldNamed(t, value, name)
	}
	switch v := value.Addr().Interface().(type) {
	case *bool:
		*v = !*v
	case *string:
		*v += "x"
	case *schema.Standby:
		*v = schema.StandbyCold
	case *int:
		*v++
	case *float64:
		*v++
	case *[]string:
		*v = append(slices.Clone(*v), "x")
	case *map[string]int:
		*v = map[string]int{"client": 3}
	case *map[string]bool:
		*v = map[string]bool{"HPAScaleToZero": false}
	default:
		duration := value.FieldByName("Duration") // metav1.Duration
		duration.SetInt(duration.Int() + int64(time.Second))
	}
	return copied
}

func fieldNamed(t *testing.T, value reflect.Value, name string) reflect.Value {
	t.Helper()
	for i := range value.NumField() {
		tag, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		if tag == name {
			return value.Field(i)
		}
	}
	t.Fatalf("no field %s in %s", name, value.Type())
	return reflect.Value{}
}

func TestEverySettingHasARule(t *testing.T) {
	cfg := newConfig()
	paths := allSettings()
	if len(paths) < 35 || !slices.Contains(paths, "leaderElection.renewDeadline") || !slices.Contains(paths, "controllers.startInterval") {
		t.Fatalf("settings were not found: %v", paths)
	}
	used := map[string]bool{}
	for _, path := range paths {
		r, ok := ruleFor(path)
		if !ok {
			t.Errorf("no rule says what a change of %s does", path)
			continue
		}
		used[r.path] = true
		steps := Plan(cfg, altered(t, cfg, path), PlanOptions{Descriptors: descriptors()})
		if len(steps) != 1 || steps[0].Action != r.action || !below(steps[0].Setting, path) || !strings.HasSuffix(steps[0].Reason, r.effect) {
			t.Errorf("plan for a change of %s: %+v", path, steps)
		}
	}
	for _, r := range rules() {
		if !used[r.path] {
			t.Errorf("the rule of %s is for no setting", r.path)
		}
		if (r.action == Pending) != (r.keep != nil) {
			t.Errorf("the rule of %s: action %s does not fit keep", r.path, r.action)
		}
	}
}

func TestKeepPendingKeepsExactlyThePendingSettings(t *testing.T) {
	running := newConfig()
	var wantPending []string
	wanted := running.DeepCopy()
	for _, path := range allSettings() {
		one := altered(t, running, path)
		effective, pending := KeepPending(running, one)
		r, _ := ruleFor(path)
		if r.action != Pending {
			if effective != one || pending != nil {
				t.Errorf("%s: pending %v, though it is live", path, pending)
			}
			continue
		}
		wantPending = append(wantPending, path)
		if d := diff(settingsOf(running), settingsOf(effective)); len(d) != 0 {
			t.Errorf("%s: effective differs from running in %v", path, d)
		}
		if len(pending) != 1 || pending[0].Path != path || show(pending[0].Running) == show(pending[0].Wanted) {
			t.Errorf("%s: pending %+v", path, pending)
		}
		wanted = altered(t, wanted, path)
	}
	want := []string{
		"cluster.client.contentType", "cluster.kubeconfig", "cluster.name", "cluster.useServiceAccountCredentials",
		"leaderElection.enabled", "leaderElection.resourceName", "leaderElection.resourceNamespace",
	}
	if slices.Sort(wantPending); !slices.Equal(wantPending, want) {
		t.Errorf("pending settings %v, want %v", wantPending, want)
	}

	// All at once, and with a live one: that one holds.
	wanted.Logging.Level = 5
	before, err := json.Marshal(wanted)
	if err != nil {
		t.Fatal(err)
	}
	effective, pending := KeepPending(running, wanted)
	if len(pending) != len(want) {
		t.Errorf("pending %v", pending)
	}
	d := diff(settingsOf(running), settingsOf(effective))
	if len(d) != 1 || d[0].path != "logging.level" {
		t.Errorf("effective differs from running in %v, want logging.level alone", d)
	}
	if after, _ := json.Marshal(wanted); !bytes.Equal(after, before) {
		t.Error("the wanted configuration was changed")
	}
}

func TestFeatureGatesOfTheClientLibraryNeedARestartOfTheProcess(t *testing.T) {
	tests := map[string]struct {
		running, wanted map[string]bool
		wantPlan        []string
		wantEffective   map[string]bool
	}{
		"set": {
			wanted:        map[string]bool{"WatchListClient": false, "HPAScaleToZero": false},
			wantPlan:      []string{"featureGates.HPAScaleToZero live", "featureGates.WatchListClient pendingRestart"},
			wantEffective: map[string]bool{"WatchListClient": true, "HPAScaleToZero": false},
		},
		"set to the default": {
			wanted:        map[string]bool{"WatchListClient": true},
			wantEffective: map[string]bool{"WatchListClient": true},
		},
		"taken back": {
			running:       map[string]bool{"ClientsAllowCBOR": true},
			wantPlan:      []string{"featureGates.ClientsAllowCBOR pendingRestart"},
			wantEffective: map[string]bool{"ClientsAllowCBOR": true},
		},
		"by its group": {
			wanted: map[string]bool{"AllAlpha": true},
			wantPlan: []string{
				"featureGates.AllAlpha live", "featureGates.ClientsAllowCBOR pendingRestart", "featureGates.ClientsPreferCBOR pendingRestart",
			},
			wantEffective: map[string]bool{"AllAlpha": true, "ClientsAllowCBOR": false, "ClientsPreferCBOR": false},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			running, wanted := newConfig(), newConfig()
			running.FeatureGates, wanted.FeatureGates = test.running, test.wanted
			var plan []string
			for _, s := range Plan(running, wanted, PlanOptions{}) {
				plan = append(plan, fmt.Sprintf("%s %s", s.Setting, s.Action))
			}
			if !slices.Equal(plan, test.wantPlan) {
				t.Errorf("plan %v, want %v", plan, test.wantPlan)
			}
			effective, _ := KeepPending(running, wanted)
			if !reflect.DeepEqual(effective.FeatureGates, test.wantEffective) {
				t.Errorf("effective %v, want %v", effective.FeatureGates, test.wantEffective)
			}
		})
	}
}

func TestPlanOfTheFirstStart(t *testing.T) {
	cfg := newConfig()
	section(cfg, b).Enabled = false
	cfg.Logging.Level = 9
	steps := Plan(nil, cfg, PlanOptions{Descriptors: descriptors(), Unavailable: func(name string, _ *schema.ControllerManagerConfiguration) string {
		if name == c {
			return "no API"
		}
		return ""
	}})
	if len(steps) != 1 || steps[0].Controller != a || steps[0].Action != Start {
		t.Errorf("plan %+v, want the start of a alone", steps)
	}
}

func TestPlanNamesWhyAControllerStartsAndStops(t *testing.T) {
	from, to := newConfig(), newConfig()
	section(from, a).Enabled = false
	section(to, b).Enabled = false
	got := fmt.Sprint(Plan(from, to, PlanOptions{Descriptors: descriptors()}))
	if want := "[{a-controller  start was disabled} {b-controller  stop disabled}]"; got != want {
		t.Errorf("plan %s, want %s", got, want)
	}
}

func TestDiffKeepsEveryDigitAndIgnoresHowNothingIsWritten(t *testing.T) {
	type settings struct {
		Number int64          `json:"number"`
		Nested map[string]any `json:"nested"`
		List   []string       `json:"list"`
		Empty  map[string]int `json:"empty"`
	}
	got := diff(settings{Number: 9007199254740993, Nested: map[string]any{"gone": true, "same": 1}},
		settings{Number: 9007199254740992, Nested: map[string]any{"same": 1, "new": ""},
			List: []string{}, Empty: map[string]int{}})
	want := `[nested.gone: true → unset nested.new: unset → "" number: 9007199254740993 → 9007199254740992]`
	if fmt.Sprint(got) != want {
		t.Errorf("diff %v, want %s", got, want)
	}
}
