package keymaterial

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/filewatch"
)

// pollInterval finds changes on file systems that send no events.
const pollInterval = 10 * time.Second

// origin is where contents come from.
type origin interface {
	// names for people.
	names() []string
	// read the contents now. Not while follow runs.
	read() filewatch.Set
	// follow tells of contents that differ from those last read, until ctx ends.
	follow(ctx context.Context, changed func(filewatch.Set)) error
}

// files are the usual origin.
type files struct {
	paths   []string
	watcher *filewatch.Watcher
	changed func(filewatch.Set)
}

func newFiles(paths []string, logger *slog.Logger) *files {
	f := &files{paths: paths}
	f.watcher = filewatch.New(filewatch.Options{
		Paths:        paths,
		OnChange:     func(set filewatch.Set) { f.changed(set) },
		PollInterval: pollInterval,
		Logger:       logger,
	})
	return f
}

func (f *files) names() []string { return f.paths }

func (f *files) read() filewatch.Set { return f.watcher.Read() }

func (f *files) follow(ctx context.Context, changed func(filewatch.Set)) error {
	f.changed = changed
	return f.watcher.Run(ctx)
}

// serverCA is the bundle by which this process verifies the API server.
type serverCA struct {
	get     func() ([]byte, <-chan struct{})
	changed <-chan struct{}
}

func (s *serverCA) names() []string {
	return []string{"the certificate authority of the kubeconfig, or of the pod's service account"}
}

func (s *serverCA) read() filewatch.Set {
	bundle, changed := s.get()
	s.changed = changed
	sum := sha256.Sum256(bundle)
	return filewatch.Set{Files: []filewatch.File{{Path: s.names()[0], Data: bundle, Digest: hex.EncodeToString(sum[:])}}}
}

func (s *serverCA) follow(ctx context.Context, changed func(filewatch.Set)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
			changed(s.read())
		}
	}
}
