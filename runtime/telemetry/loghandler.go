package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/lmittmann/tint"
)

// moduleHandler is the handler of one module's loggers. It keeps the
// attributes and groups it was given, as one step from its parent, so that it
// can give them to another output when the format changes.
type moduleHandler struct {
	logging *Logging
	module  string
	parent  *moduleHandler
	step    func(slog.Handler) slog.Handler
	made    atomic.Pointer[madeHandler]
}

// madeHandler is the output with all attributes and groups.
type madeHandler struct {
	output *output
	slog.Handler
}

// Enabled implements slog.Handler.
func (h *moduleHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.Level(-h.logging.levels.Load().of(h.module))
}

// Handle implements slog.Handler.
func (h *moduleHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.make(h.logging.output.Load()).Handle(ctx, withoutBodies(r))
}

// WithAttrs implements slog.Handler.
func (h *moduleHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	if len(attrs) == 0 {
		return h
	}
	attrs = slices.Clone(attrs)
	return h.with(func(next slog.Handler) slog.Handler { return next.WithAttrs(attrs) })
}

// WithGroup implements slog.Handler.
func (h *moduleHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return h.with(func(next slog.Handler) slog.Handler { return next.WithGroup(name) })
}

func (h *moduleHandler) with(step func(slog.Handler) slog.Handler) slog.Handler {
	return &moduleHandler{logging: h.logging, module: h.module, parent: h, step: step}
}

// make applies all steps to o, once per output.
func (h *moduleHandler) make(o *output) slog.Handler {
	if h.parent == nil {
		return o.Handler
	}
	if made := h.made.Load(); made != nil && made.output == o {
		return made.Handler
	}
	made := &madeHandler{output: o, Handler: h.step(h.parent.make(o))}
	h.made.Store(made)
	return made.Handler
}

// bodyVerbosity is where client-go begins to log the bodies of requests and
// responses, which hold the content of Secrets and new tokens.
const bodyVerbosity = 8

// withoutBodies replaces what client-go logs of bodies by its size.
func withoutBodies(r slog.Record) slog.Record {
	if r.Level > -bodyVerbosity || r.Message != "Request Body" && r.Message != "Response Body" {
		return r
	}
	safe := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "body" {
			a.Value = withheld(len(a.Value.String()))
		}
		safe.AddAttrs(a)
		return true
	})
	return safe
}

func withheld(size int) slog.Value {
	return slog.StringValue(fmt.Sprintf("%d bytes, not logged", size))
}

// safeAttr withholds raw bytes, such as keys, whatever their name.
func safeAttr(a slog.Attr) slog.Attr {
	if data, ok := a.Value.Any().([]byte); ok {
		a.Value = withheld(len(data))
	}
	return a
}

// jsonAttr makes levels those that log stores know, with the verbosity beside.
func jsonAttr(groups []string, a slog.Attr) slog.Attr {
	level, ok := a.Value.Any().(slog.Level)
	if len(groups) > 0 || a.Key != slog.LevelKey || !ok {
		return safeAttr(a)
	}
	if level >= slog.LevelInfo {
		return a
	}
	return slog.Attr{Value: slog.GroupValue(
		slog.String(slog.LevelKey, slog.LevelDebug.String()),
		slog.Int("v", int(-level)),
	)}
}

// textAttr shows levels below info as V1, V2 …
func textAttr(groups []string, a slog.Attr) slog.Attr {
	level, ok := a.Value.Any().(slog.Level)
	if len(groups) > 0 || a.Key != slog.LevelKey || !ok {
		return safeAttr(a)
	}
	if level >= slog.LevelInfo {
		return a
	}
	const bright = 8 // ANSI bright black
	return tint.Attr(bright, slog.String(slog.LevelKey, fmt.Sprintf("%-3s", fmt.Sprintf("V%d", -level))))
}
