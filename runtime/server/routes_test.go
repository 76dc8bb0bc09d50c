package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"

func TestRoutes(t *testing.T) {
	h := handler(t, sample())
	tests := []struct {
		method, target, accept string
		code                   int
		contentType, body      string
	}{
		{"GET", "/", "", 200, "text/html; charset=utf-8", "Leading"},
		{"HEAD", "/", "", 200, "text/html; charset=utf-8", ""},
		{"GET", "/configz", "", 200, "application/json", `{"config.wheelhouse.dev":{`},
		{"GET", "/configz", "*/*", 200, "application/json", `{"config.wheelhouse.dev":{`},
		{"GET", "/configz", browser, 200, "text/html; charset=utf-8", "What runs"},
		{"GET", "/configz?format=yaml", "", 200, "application/yaml", "kind: ControllerManagerConfiguration"},
		{"GET", "/configz?format=xml", "", 400, "text/plain; charset=utf-8", `format "xml" is not known`},
		{"GET", "/configz/status", "", 200, "application/json", `"pendingRestart":[{"path":"leaderElection.resourceName"`},
		{"GET", "/debug/controllers", "", 200, "application/json", `{"controllers":[{"name":"deployment-controller"`},
		{"GET", "/debug/controllers", browser, 200, "text/html; charset=utf-8", "ttl-after-finished-controller"},
		{"GET", "/debug/controllers?format=json", browser, 200, "application/json", `{"controllers":[`},
		{"GET", "/debug/controllers?format=html", "", 200, "text/html; charset=utf-8", "<h1>Controllers</h1>"},
		{"GET", "/debug/controllers/deployment-controller", "", 200, "application/json", `"config":{"enabled":true`},
		{"GET", "/debug/controllers/deployment-controller", browser, 200, "text/html; charset=utf-8", "<h1>deployment-controller</h1>"},
		{"GET", "/debug/controllers/nothing", "", 404, "text/plain; charset=utf-8", "404 page not found"},
		{"GET", "/debug/controllers/deployment-controller/graph", "", 200, "", "GET /graph"},
		{"POST", "/debug/controllers/deployment-controller/", "", 200, "", "POST /"},
		{"GET", "/debug/controllers/replicaset-controller/graph", "", 404, "text/plain; charset=utf-8", "404 page not found"},
		{"GET", "/debug/reloads", "", 200, "application/json", `{"reloads":[{"at":`},
		{"GET", "/debug/reloads", browser, 200, "text/html; charset=utf-8", "workers 5 → 8"},
		{"GET", "/debug/leader", "", 200, "application/json", `{"leader":true`},
		{"GET", "/debug/leader", browser, 200, "text/html; charset=utf-8", "Leading"},
		{"GET", "/debug/informers", "", 200, "application/json", `{"informers":[{"resource":"apps/v1 deployments"`},
		{"GET", "/debug/informers", browser, 200, "text/html; charset=utf-8", "88214071"},
		{"GET", "/debug/flags/v", "", 200, "text/plain; charset=utf-8", "2\n"},
		{"GET", "/metrics", "", 200, "", "workqueue_depth 0"},
		{"GET", "/metrics/slis", "", 200, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", ""},
		{"GET", "/debug/pprof", "", 302, "text/html; charset=utf-8", "/debug/pprof/"},
		{"GET", "/debug/pprof/", "", 200, "text/html; charset=utf-8", "goroutine"},
		{"GET", "/debug/pprof/goroutine?debug=1", "", 200, "text/plain; charset=utf-8", "goroutine profile:"},
		{"GET", "/debug/pprof/cmdline", "", 404, "text/plain; charset=utf-8", "Unknown profile"},
		{"GET", "/debug/pprof/symbol", "", 200, "text/plain; charset=utf-8", "num_symbols"},
		{"GET", "/nothing", "", 404, "text/plain; charset=utf-8", "404 page not found"},
		{"GET", "/healthz/", "", 404, "text/plain; charset=utf-8", "404 page not found"},
		{"GET", "/debug/../configz", "", 400, "text/plain; charset=utf-8", "path is not canonical"},
		{"GET", "/healthz/..%2fconfigz", "", 400, "text/plain; charset=utf-8", "path is not canonical"},
		{"GET", "//configz", "", 400, "text/plain; charset=utf-8", "path is not canonical"},
		{"GET", "/%63onfigz", "", 200, "application/json", `{"config.wheelhouse.dev":{`},
	}
	for _, test := range tests {
		t.Run(test.method+" "+test.target+" "+test.accept, func(t *testing.T) {
			answer := ask(h, test.method, test.target, "Accept", test.accept)
			if answer.Code != test.code {
				t.Fatalf("got %d, want %d: %s", answer.Code, test.code, answer.Body)
			}
			if got := answer.Header().Get("Content-Type"); test.contentType != "" && got != test.contentType {
				t.Errorf("Content-Type is %q, want %q", got, test.contentType)
			}
			mustContain(t, answer.Body.String(), test.body)
			if got := answer.Header().Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control is %q", got)
			}
			if got := answer.Header().Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options is %q", got)
			}
			if got := answer.Header().Get("Content-Security-Policy"); !strings.Contains(got, "default-src 'none'") {
				t.Errorf("Content-Security-Policy is %q", got)
			}
		})
	}
}

func TestMethodNotAllowed(t *testing.T) {
	h := handler(t, sample())
	for target, allow := range map[string]string{
		"/":                  "GET, HEAD",
		"/healthz":           "GET, HEAD",
		"/livez/ping":        "GET, HEAD",
		"/configz":           "GET, HEAD",
		"/metrics":           "GET, HEAD",
		"/metrics/slis":      "DELETE, GET, HEAD",
		"/debug/controllers": "GET, HEAD",
		"/debug/flags/v":     "GET, HEAD, PUT",
	} {
		answer := ask(h, http.MethodPatch, target)
		if answer.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: got %d", target, answer.Code)
		}
		methods := answer.Header().Values("Allow")
		slices.Sort(methods)
		if got := strings.Join(methods, ", "); got != allow {
			t.Errorf("%s: Allow is %q, want %q", target, got, allow)
		}
	}
}

// The forms that tools rely on, whole.
func TestJSON(t *testing.T) {
	h := handler(t, sample())
	stamp := func(d time.Duration) string {
		text, err := before(d).MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	tests := map[string]string{
		"/configz/status": `{"digest":"` + strings.Repeat("9f2c41d07be8", 6)[:64] + `","loadedAt":"` + stamp(14*time.Minute) + `",
			"path":"/etc/wheelhouse/controller-manager.yaml",
			"origins":{"cluster.name":{"layer":"default"},
				"controllers.deployment-controller.workers":
					{"layer":"file","source":"/etc/wheelhouse/controller-manager.yaml","line":21,"column":14},
				"logging.level":{"layer":"env","source":"WHEELHOUSE_LOGGING_LEVEL"}},
			"pendingRestart":[{"path":"leaderElection.resourceName","running":"kube-controller-manager","wanted":"wheelhouse"}],
			"rejected":null}`,
		"/debug/leader": `{"leader":true,"identity":"cp-1_7c5be1f0-5d2a-4a0e-9d58-2f6f1f0a7c11",
			"holder":"cp-1_7c5be1f0-5d2a-4a0e-9d58-2f6f1f0a7c11","acquiredAt":"` + stamp(29*time.Hour) + `",
			"renewedAt":"` + stamp(1200*time.Millisecond) + `","transitions":6,"fencedRequests":0}`,
		"/debug/controllers/ttl-after-finished-controller": `{"name":"ttl-after-finished-controller","state":"Failed",
			"since":"` + stamp(22*time.Second) + `","reason":"starts again in 10 s",
			"workers":{"wanted":5,"running":0,"busy":0},"queue":{"depth":0,"oldestSeconds":0},"restarts":4,
			"lastError":"panic: assignment to entry in nil map",
			"longestSeconds":0,"lastReconcileError":"","informers":["batch/v1 jobs"],"config":null,"debug":false}`,
	}
	for target, want := range tests {
		if diff := cmp.Diff(decode(t, want), decode(t, ask(h, http.MethodGet, target).Body.String())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", target, diff)
		}
	}

	controllers := decode(t, ask(h, http.MethodGet, "/debug/controllers").Body.String()).(map[string]any)["controllers"].([]any)
	want := decode(t, `{"name":"deployment-controller","state":"Running","since":"`+stamp(14*time.Minute)+`","reason":"",
		"workers":{"wanted":5,"running":5,"busy":3},"queue":{"depth":12,"oldestSeconds":1.4},"restarts":1,"lastError":""}`)
	if diff := cmp.Diff(want, controllers[0]); diff != "" {
		t.Errorf("first controller (-want +got):\n%s", diff)
	}

	reloads := decode(t, ask(h, http.MethodGet, "/debug/reloads").Body.String()).(map[string]any)["reloads"].([]any)
	want = decode(t, `[{"at":"`+stamp(14*time.Minute)+`","trigger":"event","digest":"`+strings.Repeat("9f2c41d07be8", 6)[:64]+`",
		"result":"applied","errors":[],"plan":[
			{"controller":"replicaset-controller","action":"resize","reason":"workers 5 → 8"},
			{"controller":"deployment-controller","action":"restart","reason":"progressDeadline 5m → 10m"},
			{"setting":"leaderElection.resourceName","action":"pendingRestart","reason":"needs a restart of the process"}],
		"tookSeconds":0.041},
		{"at":"`+stamp(16*time.Minute)+`","trigger":"event","digest":"`+strings.Repeat("41c0", 16)+`","result":"rejected",
		"errors":[{"line":18,"column":14,"path":"controllers.replicaset-controller.workers","message":"-8 is too small: at least 1 is needed"}],
		"plan":[],"tookSeconds":0.003}]`)
	if diff := cmp.Diff(want, any(reloads[:2])); diff != "" {
		t.Errorf("reloads (-want +got):\n%s", diff)
	}
}

func TestJSON_SecondsHaveThreeDecimalsAtMost(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                           "0",
		1243 * time.Millisecond:     "1.243",
		-1500 * time.Millisecond:    "-1.5",
		2567499 * time.Microsecond:  "2.567",
		26999600 * time.Microsecond: "27",
	} {
		if got, err := json.Marshal(seconds(d)); err != nil || string(got) != want {
			t.Errorf("%s is %s, want %s: %v", d, got, want, err)
		}
	}
}

func TestJSON_NothingKnown(t *testing.T) {
	h := handler(t, Sources{})
	for target, want := range map[string]string{
		"/configz/status":    `{"digest":"","loadedAt":null,"path":"","origins":{},"pendingRestart":[],"rejected":null}`,
		"/debug/controllers": `{"controllers":[]}`,
		"/debug/reloads":     `{"reloads":[]}`,
		"/debug/informers":   `{"informers":[]}`,
		"/debug/leader": `{"leader":false,"identity":"","holder":"","acquiredAt":null,"renewedAt":null,` +
			`"transitions":0,"fencedRequests":0}`,
	} {
		if got := ask(h, http.MethodGet, target).Body.String(); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", target, got, want)
		}
	}
	if answer := ask(h, http.MethodGet, "/configz"); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("/configz: got %d", answer.Code)
	}
	if answer := ask(h, http.MethodGet, "/"); answer.Code != http.StatusOK {
		t.Errorf("/: got %d: %s", answer.Code, answer.Body)
	}
}

func TestJSON_RejectedFile(t *testing.T) {
	at := before(time.Minute).UTC()
	h := handler(t, Sources{Config: func() ConfigStatus {
		return ConfigStatus{Rejected: &config.Rejection{Digest: "abc", At: at, Errors: schema.Errors{
			{Origin: schema.Origin{Layer: "file", Source: "f.yaml", Line: 3, Column: 7}, Path: "reload.debounce", Message: "no unit"},
			{Origin: schema.Origin{Layer: "env", Source: "WHEELHOUSE_LOGGING_LEVEL"}, Path: "logging.level", Message: "not a number"},
		}}}
	}})
	stamp, err := at.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	want := `"rejected":{"digest":"abc","at":"` + string(stamp) + `","errors":[` +
		`{"line":3,"column":7,"path":"reload.debounce","message":"no unit"},` +
		`{"source":"WHEELHOUSE_LOGGING_LEVEL","line":0,"column":0,"path":"logging.level","message":"not a number"}]}`
	mustContain(t, ask(h, http.MethodGet, "/configz/status").Body.String(), want)
	mustContain(t, ask(h, http.MethodGet, "/").Body.String(), "The newest file is rejected", "f.yaml:3:7", "not a number")
}

// What /configz says as YAML can be used as the file.
func TestConfigz_YAMLIsAFile(t *testing.T) {
	scheme := schema.NewScheme()
	want := scheme.Default()
	want.Server.BindAddress = "192.0.2.1"
	h := handler(t, Sources{Config: func() ConfigStatus { return ConfigStatus{Running: &config.Snapshot{Config: want, Digest: "abc"}} }})

	body := ask(h, http.MethodGet, "/configz?format=yaml").Body.Bytes()
	layer, errs := scheme.DecodeFile("f.yaml", body)
	if len(errs) > 0 {
		t.Fatalf("not a configuration: %v\n%s", errs, body)
	}
	got, errs := scheme.Build(layer.Values, layer.Origins)
	if len(errs) > 0 {
		t.Fatalf("not a valid configuration: %v\n%s", errs, body)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	var keyed map[string]json.RawMessage
	if err := json.Unmarshal(ask(h, http.MethodGet, "/configz").Body.Bytes(), &keyed); err != nil {
		t.Fatal(err)
	}
	fromYAML, err := yaml.YAMLToJSON(body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, string(fromYAML)), decode(t, string(keyed[schema.Group]))); diff != "" {
		t.Errorf("YAML and JSON differ (-yaml +json):\n%s", diff)
	}
}

func decode(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return value
}

func TestLogLevel(t *testing.T) {
	level := 2
	h := handler(t, Sources{
		LogLevel: func() int { return level },
		SetLogLevel: func(to int) error {
			if to > 10 {
				return errors.New("verbosity 11 is too high: use 0 to 10")
			}
			level = to
			return nil
		},
	})
	put := func(body io.Reader) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/debug/flags/v", body))
		return w
	}
	tests := []struct {
		body string
		code int
		want string
		then int
	}{
		{"4", 200, "successfully set klog.logging.verbosity to 4\n", 4},
		{"7\n", 200, "successfully set klog.logging.verbosity to 7\n", 7},
		{"-1", 400, "strconv.ParseUint: parsing \"-1\": invalid syntax\n", 7},
		{"much", 400, "strconv.ParseUint: parsing \"much\": invalid syntax\n", 7},
		{"", 400, "strconv.ParseUint: parsing \"\": invalid syntax\n", 7},
		{"99999999999", 400, "strconv.ParseUint: parsing \"99999999999\": value out of range\n", 7},
		{"11", 400, "verbosity 11 is too high: use 0 to 10\n", 7},
		{strings.Repeat("1", maxBodyBytes+1), 413, "request body too large\n", 7},
	}
	for _, test := range tests {
		answer := put(strings.NewReader(test.body))
		if answer.Code != test.code || answer.Body.String() != test.want {
			t.Errorf("PUT %.20q: got %d %q, want %d %q", test.body, answer.Code, answer.Body, test.code, test.want)
		}
		if level != test.then {
			t.Errorf("PUT %.20q: level is %d, want %d", test.body, level, test.then)
		}
	}
	if answer := ask(h, http.MethodGet, "/debug/flags/v"); answer.Body.String() != "7\n" {
		t.Errorf("GET: %q", answer.Body)
	}
}

func TestProfiling_IsSwitchedLive(t *testing.T) {
	s, err := New(Options{Logger: discard, Config: schema.Server{Profiling: true}})
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false, true} {
		if err := s.Apply(schema.Server{Profiling: on}); err != nil {
			t.Fatal(err)
		}
		want := http.StatusNotFound
		if on {
			want = http.StatusOK
		}
		for _, target := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/symbol"} {
			if got := ask(s.Handler(), http.MethodGet, target).Code; got != want {
				t.Errorf("profiling %v, %s: got %d, want %d", on, target, got, want)
			}
		}
	}
}

func TestPanic_IsContained(t *testing.T) {
	sources := sample()
	sources.ControllerHandler = func(string) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })
	}
	h := handler(t, sources)
	answer := ask(h, http.MethodGet, "/debug/controllers/deployment-controller/graph")
	if answer.Code != 500 || answer.Body.String() != "internal server error: see the log\n" {
		t.Errorf("got %d %q", answer.Code, answer.Body)
	}
}
