// Package config turns a configuration file and the layers above it into a
// stream of validated snapshots, and follows the file while the process runs.
package config

import (
	"time"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// Snapshot is one valid configuration. It is never changed after it was made.
type Snapshot struct {
	Config *schema.ControllerManagerConfiguration
	// Digest is the sha256 of the file's bytes, in hex; empty without a file.
	Digest string
	// Path of the file as it was given; empty without a file.
	Path     string
	LoadedAt time.Time
	// Trigger is why it was loaded: start, event, poll or signal, as in filewatch.
	Trigger string
	// Origins of every value, by path.
	Origins map[string]schema.Origin
	// Warnings are about values that are understood but have no effect.
	Warnings schema.Errors
}

// Rejection is a file that could not be used.
type Rejection struct {
	Digest  string
	At      time.Time
	Trigger string
	// Errors has at least one entry; a missing or unreadable file is one too.
	Errors schema.Errors
}

// Update is what the Source found: exactly one field is set.
type Update struct {
	Snapshot  *Snapshot
	Rejection *Rejection
}
