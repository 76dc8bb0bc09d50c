package telemetry

import (
	"fmt"
	"log/slog"
	"strconv"

	"k8s.io/klog/v2"
)

const (
	// klogModule is the module of what the Kubernetes libraries log by klog.
	klogModule = "client-go"
	// processModule is the module of what other libraries log by slog's default
	// logger or package log.
	processModule = "process"
)

// RouteKlog sends klog, slog's default logger and package log through this
// log, with that also the errors that apimachinery's runtime.ErrorHandlers are
// given. It is for the process as a whole, once, before anything logs.
func (l *Logging) RouteKlog() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.routed = true
	klog.SetSlogLogger(l.Logger(klogModule))
	logger := l.Logger(processModule)
	slog.SetDefault(logger)
	if err := setKlogVerbosity(l.levels.Load().of(klogModule)); err != nil {
		logger.Error("the level of client-go's log stays as it is", "err", err)
	}
}

// setKlogVerbosity is needed besides our own levels, because klog.V(n) asks klog.
func setKlogVerbosity(v int) error {
	var level klog.Level
	if err := level.Set(strconv.Itoa(v)); err != nil {
		return fmt.Errorf("set the level of klog: %w", err)
	}
	return nil
}
