package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/wheelhouse-project/wheelhouse/runtime/filewatch"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// filesPollInterval finds changes on file systems that send no events.
const filesPollInterval = 10 * time.Second

// tlsFiles are the files whose content is followed; an empty path is none.
type tlsFiles struct{ cert, key, clientCA string }

func filesOf(cfg schema.ServerTLS) tlsFiles {
	return tlsFiles{cert: cfg.CertFile, key: cfg.KeyFile, clientCA: cfg.ClientCAFile}
}

func (f tlsFiles) list() []string {
	return slices.DeleteFunc([]string{f.cert, f.key, f.clientCA}, func(path string) bool { return path == "" })
}

// follower hands the content of the files to those who use them. A nil
// follower can be stopped.
type follower struct {
	paths        tlsFiles
	certificates *certificates
	trust        *trust
	log          *slog.Logger
	watcher      *filewatch.Watcher
	cancel       context.CancelFunc
	running      sync.WaitGroup

	mu sync.Mutex
	// unloaded says why the pair and the client CA have not been used since
	// their paths were set; nil from when they have.
	unloaded struct{ pair, clientCA error }
}

func newFollower(log *slog.Logger, paths tlsFiles, c *certificates, t *trust) *follower {
	f := &follower{paths: paths, certificates: c, trust: t, log: log}
	if files := paths.list(); len(files) > 0 {
		f.watcher = filewatch.New(filewatch.Options{
			Paths:        files,
			OnChange:     f.changed,
			PollInterval: filesPollInterval,
			Logger:       log,
		})
	}
	return f
}

// load reads all files now.
func (f *follower) load() error {
	var set filewatch.Set
	if f.watcher != nil {
		set = f.watcher.Read()
	}
	return f.take(set, true)
}

// missing says which files could not be used since their paths were set.
func (f *follower) missing() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.unloaded.pair, f.unloaded.clientCA)
}

func (f *follower) start() {
	if f.watcher == nil || f.cancel != nil {
		return
	}
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(context.Background())
	f.running.Go(func() {
		if err := f.watcher.Run(ctx); err != nil && ctx.Err() == nil {
			f.log.Error("TLS files are not followed any more", "files", f.paths.list(), "err", err)
		}
	})
}

func (f *follower) stop() {
	if f == nil || f.cancel == nil {
		return
	}
	f.cancel()
	f.running.Wait()
}

func (f *follower) changed(set filewatch.Set) {
	if err := f.take(set, false); err != nil {
		f.log.Error("Changed TLS files cannot be used, what was loaded before stays in use", "err", err)
	}
}

// take uses the files that changed, or all of them.
func (f *follower) take(set filewatch.Set, all bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	files := map[string]filewatch.File{}
	for _, file := range set.Files {
		files[file.Path] = file
	}
	cert, key, ca := files[f.paths.cert], files[f.paths.key], files[f.paths.clientCA]
	var pairErr, caErr error
	if f.paths.cert != "" && (all || cert.Changed || key.Changed) {
		pairErr = f.certificates.usePair(cert, key)
		if all || pairErr == nil || f.unloaded.pair != nil {
			f.unloaded.pair = pairErr
		}
	}
	switch {
	case f.paths.clientCA == "":
		f.trust.useFile(nil)
	case all || ca.Changed:
		caErr = f.useClientCA(ca)
		if all || caErr == nil || f.unloaded.clientCA != nil {
			f.unloaded.clientCA = caErr
		}
	}
	return errors.Join(pairErr, caErr)
}

func (f *follower) useClientCA(file filewatch.File) error {
	bundle, err := newBundle(file.Path, file.Data)
	if file.Err != nil {
		err = file.Err
	}
	if err != nil {
		err = fmt.Errorf("server.tls.clientCAFile %s: %w: give a PEM file with at least one CA certificate", file.Path, err)
		f.trust.reject(err)
		return err
	}
	f.trust.useFile(bundle)
	return nil
}
