package config

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"

	"github.com/wheelhouse-project/wheelhouse/runtime/filewatch"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Options of Load and of a Source. Scheme is required.
type Options struct {
	Scheme *schema.Scheme
	// Path of the configuration file. Empty: defaults, environment and Set only.
	Path string
	// Set are the path=value arguments of --set, in their order.
	Set []string
	// Environ is the environment as os.Environ gives it.
	Environ []string
	// Logger. Default: discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Load reads and validates the configuration once. It returns a snapshot or
// every fault, of the file first.
func Load(o Options) (*Snapshot, schema.Errors) {
	o = o.withDefaults()
	return o.evaluate(o.readFile(), filewatch.TriggerStart)
}

// readFile returns nil when there is no file to read.
func (o Options) readFile() *filewatch.File {
	if o.Path == "" {
		return nil
	}
	file := filewatch.ReadFile(o.Path, schema.MaxFileSize)
	return &file
}

// evaluate makes a snapshot out of the file and the layers above it.
func (o Options) evaluate(file *filewatch.File, trigger string) (*Snapshot, schema.Errors) {
	layers, errs := o.decode(file)
	snapshot := &Snapshot{
		Path:     o.Path,
		LoadedAt: time.Now(),
		Trigger:  trigger,
		Origins:  schema.MergeOrigins(layers...),
	}
	if file != nil {
		snapshot.Digest = file.Digest
	}
	for _, layer := range layers {
		// A layer without values could not be understood at all, and what is
		// said about the rest without it would be wrong.
		if layer.Values == nil {
			return nil, errs
		}
		snapshot.Warnings = append(snapshot.Warnings, layer.Warnings...)
	}
	values, err := merge(layers)
	if err != nil {
		return nil, append(errs, schema.Error{Message: err.Error()})
	}
	config, faults := o.Scheme.Build(values, snapshot.Origins)
	if errs = append(errs, faults...); len(errs) > 0 {
		return nil, errs
	}
	snapshot.Config = config
	for _, warning := range snapshot.Warnings {
		o.Logger.Warn("configuration", "at", warning.Origin.String(), "path", warning.Path, "warning", warning.Message)
	}
	return snapshot, nil
}

// decode returns the layers, weakest first.
func (o Options) decode(file *filewatch.File) (layers []schema.Layer, errs schema.Errors) {
	add := func(layer schema.Layer, faults schema.Errors) {
		layers = append(layers, layer)
		errs = append(errs, faults...)
	}
	add(o.Scheme.DefaultLayer(), nil)
	switch {
	case file == nil:
	case file.Err != nil:
		add(schema.Layer{}, schema.Errors{unusable(*file)})
	default:
		add(o.Scheme.DecodeFile(o.Path, file.Data))
	}
	add(o.Scheme.DecodeEnv(o.Environ))
	for _, arg := range o.Set {
		add(o.Scheme.DecodeSet(arg))
	}
	return layers, errs
}

// merge joins layers key by key; lists replace each other as a whole.
func merge(layers []schema.Layer) (map[string]any, error) {
	merged := koanf.New(".")
	for _, layer := range layers {
		if err := merged.Load(confmap.Provider(layer.Values, ""), nil); err != nil {
			return nil, fmt.Errorf("merge the layers of the configuration: %w", err)
		}
	}
	return merged.Raw(), nil
}

// unusable says what is wrong with a file as a whole.
func unusable(file filewatch.File) schema.Error {
	var message string
	var pathError *fs.PathError
	switch err := file.Err; {
	case errors.Is(err, fs.ErrNotExist):
		message = "does not exist"
	case errors.Is(err, syscall.EISDIR):
		message = "is a directory; expected a file"
	case errors.Is(err, filewatch.ErrNotRegular):
		message = "is not a regular file"
	case errors.Is(err, filewatch.ErrTooLarge):
		message = fmt.Sprintf("has more than %d bytes, which is the most that is read", schema.MaxFileSize)
	case errors.Is(err, filewatch.ErrUnstable):
		message = "changes whenever it is read"
	case errors.As(err, &pathError):
		message = "cannot be read: " + pathError.Err.Error()
	default:
		message = "cannot be read: " + err.Error()
	}
	return schema.Error{Origin: schema.Origin{Layer: "file", Source: file.Path}, Message: message}
}
