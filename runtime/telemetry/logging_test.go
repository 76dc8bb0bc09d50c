package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/wheelhouse-project/wheelhouse/runtime/telemetry"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// entries parses a JSON log.
func entries(t testing.TB, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(text) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, entry)
	}
	return all
}

// messages of a JSON log, space separated.
func messages(t testing.TB, text string) string {
	t.Helper()
	var all []string
	for _, entry := range entries(t, text) {
		all = append(all, fmt.Sprint(entry["msg"]))
	}
	return strings.Join(all, " ")
}

func TestHandlerKeepsTheContractOfSlog(t *testing.T) {
	var w bytes.Buffer
	logger := telemetry.NewLogging(&w, false).Logger("test")
	err := slogtest.TestHandler(logger.Handler(), func() []map[string]any { return entries(t, w.String()) })
	if err != nil {
		t.Error(err)
	}
}

func TestLevels(t *testing.T) {
	var w lockedBuffer
	l := telemetry.NewLogging(&w, false)
	logAll := func() {
		for _, module := range []string{"deployment-controller", "work"} {
			logger := l.Logger(module)
			v := logr.FromSlogHandler(logger.Handler())
			v.V(4).Info(module + "4")
			v.V(2).Info(module + "2")
			logger.Debug(module + "debug")
			logger.Info(module + "info")
			logger.Warn(module + "warn")
		}
	}
	loggers := func(config schema.Logging) string {
		t.Helper()
		must(t, l.Apply(config))
		logAll()
		return messages(t, w.take())
	}
	const quiet = "deployment-controllerinfo deployment-controllerwarn workinfo workwarn"
	logAll()
	if got := messages(t, w.take()); got != quiet {
		t.Errorf("at first: %s", got)
	}
	for _, test := range []struct {
		name   string
		config schema.Logging
		want   string
	}{
		{"0", schema.Logging{}, quiet},
		{"2", schema.Logging{Level: 2}, "deployment-controller2 deployment-controllerinfo deployment-controllerwarn work2 workinfo workwarn"},
		{
			"one module up",
			schema.Logging{Modules: map[string]int{"work": 4}},
			"deployment-controllerinfo deployment-controllerwarn work4 work2 workdebug workinfo workwarn",
		},
		{
			"one module down",
			schema.Logging{Level: 4, Modules: map[string]int{"deployment-controller": 0}},
			"deployment-controllerinfo deployment-controllerwarn work4 work2 workdebug workinfo workwarn",
		},
	} {
		if got := loggers(test.config); got != test.want {
			t.Errorf("%s: got %s", test.name, got)
		}
	}
}

func TestVerbosityOverridesUntilSomethingElseIsApplied(t *testing.T) {
	var w lockedBuffer
	l := telemetry.NewLogging(&w, false)
	must(t, l.Apply(schema.Logging{Level: 1, Modules: map[string]int{"work": 3}}))
	must(t, l.SetVerbosity(5))
	if got := l.Verbosity(); got != 5 {
		t.Errorf("verbosity %d", got)
	}
	l.Logger("work").Log(context.Background(), -4, "no")
	l.Logger("work").Log(context.Background(), -3, "yes")
	l.Logger("config").Log(context.Background(), -5, "yes")
	if got := messages(t, w.take()); got != "yes yes" {
		t.Errorf("got %s", got)
	}
	if err := l.SetVerbosity(-1); err == nil {
		t.Error("-1 accepted")
	}
	must(t, l.Apply(schema.Logging{Level: 1, Modules: map[string]int{"work": 3}}))
	if got := l.Verbosity(); got != 5 {
		t.Errorf("verbosity %d after what was applied before was applied again", got)
	}
	must(t, l.Apply(schema.Logging{Level: 1}))
	if got := l.Verbosity(); got != 1 {
		t.Errorf("verbosity %d", got)
	}
}

func TestApplyRefusesWhatItCannotDo(t *testing.T) {
	l := telemetry.NewLogging(&bytes.Buffer{}, false)
	must(t, l.Apply(schema.Logging{Level: 2, Format: "json"}))
	for _, c := range []schema.Logging{{Format: "xml"}, {Level: -1}, {Modules: map[string]int{"work": -1}}} {
		if err := l.Apply(c); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
	if l.Verbosity() != 2 {
		t.Error("a refused setting changed the level")
	}
}

// Loggers handed out before keep their attributes and groups in the new format.
func TestFormatChangesLive(t *testing.T) {
	var w lockedBuffer
	l := telemetry.NewLogging(&w, false)
	logger := l.Logger("work").With("controller", "c").WithGroup("g").With("a", 1).WithGroup("").WithGroup("h").With("b", 2)
	logger.Info("json", "x", 3)
	entry := entries(t, w.take())[0]
	if got := fmt.Sprintln(entry["module"], entry["controller"], entry["g"]); got != "work c map[a:1 h:map[b:2 x:3]]\n" {
		t.Errorf("json: %s", got)
	}
	must(t, l.Apply(schema.Logging{Format: "text"}))
	logger.Info("text", "x", 3)
	if got := w.take(); !strings.Contains(got, "INF text module=work controller=c g.a=1 g.h.b=2 g.h.x=3\n") {
		t.Errorf("text: %q", got)
	}
	must(t, l.Apply(schema.Logging{}))
	logger.Info("auto", "x", 3)
	if got := messages(t, w.take()); got != "auto" {
		t.Errorf("auto: %s", got)
	}
}

func TestFormats(t *testing.T) {
	for _, test := range []struct {
		name     string
		terminal bool
		format   string
		want     string
	}{
		{"auto on a terminal", true, "auto", "\x1b["},
		{"auto elsewhere", false, "auto", `"msg":"m"`},
		{"text elsewhere has no colours", false, "text", "V2  m module=work"},
		{"json on a terminal", true, "json", `"level":"DEBUG","v":2,"msg":"m"`},
	} {
		var w lockedBuffer
		l := telemetry.NewLogging(&w, test.terminal)
		must(t, l.Apply(schema.Logging{Format: test.format, Level: 2}))
		l.Logger("work").Log(context.Background(), -2, "m")
		if got := w.take(); !strings.Contains(got, test.want) {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}

func TestKeysAndBodiesAreWithheld(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var w lockedBuffer
		l := telemetry.NewLogging(&w, false)
		must(t, l.Apply(schema.Logging{Format: format, Level: 10}))
		logger := l.Logger("client")
		v := logr.FromSlogHandler(logger.Handler()).V(8)
		v.Info("Response Body", "body", `{"data":{"password":"c2VjcmV0"}}`)
		v.WithValues("a", 1).Info("Request Body", "body", "c2VjcmV0")
		logger.Info("loaded", "key", []byte("c2VjcmV0"), slog.Group("g", "key", []byte("c2VjcmV0")))
		got := w.take()
		if strings.Contains(got, "c2VjcmV0") || strings.Contains(got, "Yz") {
			t.Errorf("%s: logged: %s", format, got)
		}
		if strings.Count(got, "bytes, not logged") != 4 {
			t.Errorf("%s: the size is missing: %s", format, got)
		}
	}
}

func TestChangesWhileLogging(t *testing.T) {
	var w lockedBuffer
	l := telemetry.NewLogging(&w, false)
	var logging sync.WaitGroup
	for i := range 4 {
		logger := l.Logger("work").With("i", i)
		logging.Go(func() {
			for range 500 {
				logger.With("x", 1).Info("m")
			}
		})
	}
	for i := range 200 {
		format := []string{"json", "text"}[i%2]
		must(t, l.Apply(schema.Logging{Format: format, Level: i % 3}))
	}
	logging.Wait()
	lines := strings.Split(strings.TrimSuffix(w.take(), "\n"), "\n")
	if len(lines) != 2000 {
		t.Errorf("%d lines", len(lines))
	}
	for _, line := range lines {
		if !strings.Contains(line, `"x":1}`) && !strings.Contains(line, "x=1") {
			t.Fatalf("broken line %q", line)
		}
	}
}

// Everything of the process comes in one stream. Not parallel: klog, slog and
// log are the process's.
func TestKlogAndOthersAreRouted(t *testing.T) {
	defaultLogger := slog.Default()
	t.Cleanup(func() {
		klog.ClearLogger()
		slog.SetDefault(defaultLogger)
		var zero klog.Level
		must(t, zero.Set("0"))
	})
	var w lockedBuffer
	l := telemetry.NewLogging(&w, false)
	l.RouteKlog()

	klog.InfoS("structured", "k", "v")
	klog.Infof("format %d", 1)
	klog.V(2).InfoS("hidden")
	klog.FromContext(t.Context()).WithName("n").V(2).Info("hidden")
	klog.ErrorS(errors.New("e"), "bad")
	utilruntime.HandleError(errors.New("handled"))
	utilruntime.HandleErrorWithContext(t.Context(), errors.New("e2"), "handled with context", "k", "v")
	slog.Info("slog")
	log.Print("log")
	var got []string
	for _, e := range entries(t, w.take()) {
		got = append(got, fmt.Sprintf("%v %v: %v", e["level"], e["module"], e["msg"]))
	}
	want := `INFO client-go: structured
INFO client-go: format 1
ERROR client-go: bad
ERROR client-go: Unhandled Error
ERROR client-go: handled with context
INFO process: slog
INFO process: log`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}

	// Levels follow live, in klog's own check too.
	must(t, l.Apply(schema.Logging{Level: 2}))
	klog.V(2).InfoS("a")
	klog.V(2).Info("b")
	klog.V(3).Info("hidden")
	klog.FromContext(t.Context()).V(2).Info("c")
	must(t, l.SetVerbosity(0))
	klog.V(1).InfoS("hidden")
	must(t, l.SetVerbosity(3))
	klog.V(3).InfoS("d")
	if got := messages(t, w.take()); got != "a b c d" {
		t.Errorf("got %s", got)
	}
}
