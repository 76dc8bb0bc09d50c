package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The programs of the control plane.
const (
	etcdProgram      = "etcd"
	apiServerProgram = "kube-apiserver"
	schedulerProgram = "kube-scheduler"
	peerProgram      = "kube-controller-manager"
	kwokProgram      = "kwok"
	// E2ETests is the test binary of Kubernetes' own end-to-end tests, and
	// Ginkgo the command that runs it in parallel.
	E2ETests = "e2e.test"
	Ginkgo   = "ginkgo"
)

// testSuffix marks programs that are made of the tests of a package.
const testSuffix = ".test"

// source is a nested module below build/ that pins the version of some programs.
type source struct {
	dir string
	// module whose version, in dir's go.mod, is the programs' version.
	module string
	// packages by program. The tests of a package are the program if its name ends so.
	packages map[string]string
	// optional programs are not part of a control plane.
	optional []string
}

var sources = []source{
	{dir: "etcd", module: "go.etcd.io/etcd/server/v3", packages: map[string]string{
		etcdProgram: "go.etcd.io/etcd/server/v3",
	}},
	{dir: "kubernetes", module: "k8s.io/kubernetes", packages: map[string]string{
		apiServerProgram: "k8s.io/kubernetes/cmd/kube-apiserver",
		schedulerProgram: "k8s.io/kubernetes/cmd/kube-scheduler",
		peerProgram:      "k8s.io/kubernetes/cmd/kube-controller-manager",
		E2ETests:         "k8s.io/kubernetes/test/e2e",
		Ginkgo:           "github.com/onsi/ginkgo/v2/ginkgo",
	}, optional: []string{E2ETests, Ginkgo}},
	{dir: "kwok", module: "sigs.k8s.io/kwok", packages: map[string]string{
		kwokProgram: "sigs.k8s.io/kwok/cmd/kwok",
	}},
}

// Programs returns the paths of the named programs, by name; with no name, of
// all that a control plane consists of. One that the directory KUBEBUILDER_ASSETS holds is taken from
// there; the others are built once into the user's cache directory, which
// takes minutes the first time and is reported to progress.
func Programs(ctx context.Context, progress io.Writer, names ...string) (map[string]string, error) {
	paths := map[string]string{}
	for _, s := range sources {
		var wanted []string
		for name := range s.packages {
			if len(names) == 0 && !slices.Contains(s.optional, name) || slices.Contains(names, name) {
				if asset := assetPath(name); asset != "" {
					paths[name] = asset
				} else {
					wanted = append(wanted, name)
				}
			}
		}
		if len(wanted) == 0 {
			continue
		}
		built, err := s.ensure(ctx, progress, wanted)
		if err != nil {
			return nil, err
		}
		for name, path := range built {
			paths[name] = path
		}
	}
	return paths, nil
}

func assetPath(name string) string {
	dir := os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		return ""
	}
	path := filepath.Join(dir, name)
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return ""
	}
	return path
}

// ensure builds those programs that the cache lacks.
func (s source) ensure(ctx context.Context, progress io.Writer, names []string) (map[string]string, error) {
	dir, err := s.moduleDir()
	if err != nil {
		return nil, err
	}
	version, err := s.version(dir)
	if err != nil {
		return nil, err
	}
	cache, err := s.cacheDir(dir, version)
	if err != nil {
		return nil, err
	}
	paths := map[string]string{}
	for _, name := range names {
		paths[name] = filepath.Join(cache, name)
	}
	if len(missing(paths)) == 0 {
		return paths, nil
	}
	unlock, err := lockFile(ctx, filepath.Join(cache, "lock"), func() {
		fmt.Fprintf(progress, "control plane: waiting for another process that builds %s\n", strings.Join(names, ", "))
	})
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", s.dir, err)
	}
	defer unlock()
	// Whoever held the lock may have built them.
	if names := missing(paths); len(names) > 0 {
		if err := s.build(ctx, progress, dir, version, cache, names); err != nil {
			return nil, fmt.Errorf("build %s: %w", strings.Join(names, ", "), err)
		}
	}
	return paths, nil
}

func missing(paths map[string]string) []string {
	var names []string
	for name, path := range paths {
		if _, err := os.Stat(path); err != nil {
			names = append(names, name)
		}
	}
	return names
}

// BuildFlags are the Makefile's. What is built with them, without cgo, shares
// compiled packages.
func BuildFlags() []string { return []string{"-trimpath", "-tags", "grpcnotrace"} }

// build compiles into a temporary directory beside the target and renames, so
// that an interrupted build leaves nothing that looks complete.
func (s source) build(ctx context.Context, progress io.Writer, dir, version, cache string, names []string) error {
	temp, err := os.MkdirTemp(cache, "building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) //nolint:errcheck // only a leftover

	what := fmt.Sprintf("%s %s", strings.Join(names, ", "), version)
	start := time.Now()
	fmt.Fprintf(progress, "control plane: building %s from source, once; this takes some minutes\n", what)
	finished := make(chan struct{})
	reporter := make(chan struct{})
	go func() {
		defer close(reporter)
		reportProgress(progress, what, start, finished)
	}()
	defer func() { close(finished); <-reporter }()

	// One at a time in the end, but the compiled packages are shared through Go's
	// build cache: with each other and, being built with the flags that the
	// Makefile has, from the versions that the root module has, with the daemon.
	for _, name := range names {
		target := filepath.Join(temp, name)
		command := []string{"build", "-buildvcs=false"}
		if strings.HasSuffix(name, testSuffix) {
			command = []string{"test", "-c"}
		}
		command = append(command, BuildFlags()...)
		cmd := exec.CommandContext(ctx, "go", append(command, "-ldflags", linkerFlags(version), "-o", target, s.packages[name])...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s %s: %w\n%s", command[0], s.packages[name], err, output)
		}
		if err := os.Rename(target, filepath.Join(cache, name)); err != nil {
			return err
		}
	}
	fmt.Fprintf(progress, "control plane: built %s in %s\n", what, time.Since(start).Round(time.Second))
	return nil
}

func reportProgress(progress io.Writer, what string, start time.Time, finished <-chan struct{}) {
	ticker := time.NewTicker(20 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			fmt.Fprintf(progress, "control plane: still building %s (%s)\n", what, time.Since(start).Round(time.Second))
		case <-finished:
			return
		}
	}
}

// linkerFlags leave out debug information and say the version that the
// Kubernetes programs report; the other programs ignore these variables.
func linkerFlags(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	const pkg = "k8s.io/component-base/version"
	return fmt.Sprintf("-s -w -X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s", pkg, version, pkg, major, pkg, minor)
}

// cacheDir is where the programs of one state of the nested module are kept.
func (s source) cacheDir(dir, version string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory for the control plane's programs: %w", err)
	}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH, linkerFlags(version))
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("read the pinned versions of the control plane: %w", err)
		}
		hash.Write(content)
	}
	key := fmt.Sprintf("%s-%s-%.12x", s.dir, version, hash.Sum(nil))
	cache := filepath.Join(base, "wheelhouse", "controlplane", key)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("make the cache directory for the control plane's programs: %w", err)
	}
	return cache, nil
}

// version is the one that the nested module's go.mod requires.
func (s source) version(dir string) (string, error) {
	content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read the pinned version of %s: %w", s.dir, err)
	}
	pattern := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(s.module) + `\s+(v\S+)`)
	match := pattern.FindSubmatch(content)
	if match == nil {
		return "", fmt.Errorf("no version of %s in %s", s.module, filepath.Join(dir, "go.mod"))
	}
	return string(match[1]), nil
}

// KubernetesVersion is the version of the API server, the scheduler and the
// kube-controller-manager that are built, such as v1.37.2.
func KubernetesVersion() (string, error) {
	for _, s := range sources {
		if s.dir == "kubernetes" {
			dir, err := s.moduleDir()
			if err != nil {
				return "", err
			}
			return s.version(dir)
		}
	}
	return "", errors.New("the control plane builds no kubernetes")
}

func (s source) moduleDir() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "test", "controlplane", "build", s.dir), nil
}

// Root is the directory of the Wheelhouse module that the working directory is in.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the root of the module: %w", err)
	}
	for start := dir; ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(content, []byte("module github.com/wheelhouse-project/wheelhouse\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the root of the module: %s is not inside a clone of wheelhouse", start)
		}
	}
}

// lockFile takes the lock at path, which other processes respect. It calls
// waiting once when it has to wait.
func lockFile(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil // closing unlocks
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			file.Close() // nothing was written
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			file.Close() // nothing was written
			return nil, fmt.Errorf("lock %s: %w", path, context.Cause(ctx))
		}
	}
}
