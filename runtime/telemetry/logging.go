package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lmittmann/tint"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Formats of the log.
const (
	formatAuto = "auto"
	formatText = "text"
	formatJSON = "json"
)

// moduleKey is the attribute with a logger's module.
const moduleKey = "module"

// Logging is the daemon's log: one stream, whose format and levels can change
// at any time for all loggers handed out. A Kubernetes verbosity of n is
// slog.Level(-n), so that slog.LevelDebug is verbosity 4.
type Logging struct {
	w        io.Writer
	terminal bool

	// output is where records go, a new pointer whenever the format changes.
	output atomic.Pointer[output]
	levels atomic.Pointer[levels]

	// mu guards changes.
	mu     sync.Mutex
	format string
	routed bool
	// applied is what Apply was given last.
	applied *schema.Logging
}

type output struct{ slog.Handler }

// levels are verbosities; never changed once in use.
type levels struct {
	common  int
	modules map[string]int
}

func (l *levels) of(module string) int {
	if v, ok := l.modules[module]; ok {
		return v
	}
	return l.common
}

// NewLogging makes a log that writes to w with the default settings.
// isTerminal decides what the format auto means.
func NewLogging(w io.Writer, isTerminal bool) *Logging {
	l := &Logging{w: &lockedWriter{w: w}, terminal: isTerminal, format: formatAuto}
	l.levels.Store(&levels{})
	l.output.Store(&output{l.handler(formatAuto)})
	return l
}

// Logger of a module: a controller's canonical name or an engine package. Its
// level and format follow Apply.
func (l *Logging) Logger(module string) *slog.Logger {
	root := &moduleHandler{logging: l, module: module}
	return slog.New(root.WithAttrs([]slog.Attr{slog.String(moduleKey, module)}))
}

// Apply takes effect at once for all loggers handed out. With an error nothing
// changes, nor does anything when c is what was applied before: then a level of
// SetVerbosity stays.
func (l *Logging) Apply(c schema.Logging) error {
	if c.Format == "" {
		c.Format = formatAuto
	}
	if c.Format != formatAuto && c.Format != formatText && c.Format != formatJSON {
		return fmt.Errorf("log format %q, want auto, text or json", c.Format)
	}
	if c.Level < 0 {
		return fmt.Errorf("log level %d, want 0 or more", c.Level)
	}
	for module, v := range c.Modules {
		if v < 0 {
			return fmt.Errorf("log level %d of %s, want 0 or more", v, module)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.applied; a != nil && a.Format == c.Format && a.Level == c.Level && maps.Equal(a.Modules, c.Modules) {
		return nil
	}
	c.Modules = maps.Clone(c.Modules)
	if c.Format != l.format {
		l.format = c.Format
		l.output.Store(&output{l.handler(c.Format)})
	}
	if err := l.setLevels(&levels{common: c.Level, modules: c.Modules}); err != nil {
		return err
	}
	l.applied = &c
	return nil
}

// Verbosity is the level of modules without one of their own.
func (l *Logging) Verbosity() int { return l.levels.Load().common }

// SetVerbosity changes it until an Apply of something else; below 0 is an error.
func (l *Logging) SetVerbosity(v int) error {
	if v < 0 {
		return fmt.Errorf("log level %d, want 0 or more", v)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.setLevels(&levels{common: v, modules: l.levels.Load().modules})
}

// setLevels is called with mu held.
func (l *Logging) setLevels(to *levels) error {
	l.levels.Store(to)
	if l.routed {
		return setKlogVerbosity(to.of(klogModule))
	}
	return nil
}

// handler makes the last handler of all loggers, which lets every level pass.
func (l *Logging) handler(format string) slog.Handler {
	all := slog.Level(math.MinInt)
	if format == formatText || format == formatAuto && l.terminal {
		return tint.NewTextHandler(l.w, &tint.Options{
			Level: all, TimeFormat: time.StampMilli, NoColor: !l.terminal, ReplaceAttr: textAttr,
		})
	}
	return slog.NewJSONHandler(l.w, &slog.HandlerOptions{Level: all, ReplaceAttr: jsonAttr})
}

// lockedWriter lets the handlers of two formats write to one stream while the
// format changes.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
