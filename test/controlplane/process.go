package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// defaultGrace is how long a process may take to end after SIGTERM before it is killed.
const defaultGrace = 10 * time.Second

// Process is one program of the control plane. It dies with this process
// (on Linux), and its output goes to a file.
type Process struct {
	// Grace is how long Stop lets the program take to end. Default: 10 s.
	Grace time.Duration

	name    string
	path    string
	args    []string
	logPath string
	tee     io.Writer

	mu     sync.Mutex
	run    *run
	paused bool
}

// run is one life of a Process.
type run struct {
	cmd *exec.Cmd
	// done is closed when the process has ended; err is set before.
	done chan struct{}
	err  error
}

// NewProcess describes a program that Start starts. Its output is appended to logPath.
func NewProcess(name, path string, args []string, logPath string) *Process {
	return &Process{Grace: defaultGrace, name: name, path: path, args: args, logPath: logPath}
}

// TeeTo copies the output of all later lives to w as well. It may not be
// called while the program runs.
func (p *Process) TeeTo(w io.Writer) { p.tee = w }

// Start starts the program. It is an error when it runs already.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != nil && !p.run.ended() {
		return fmt.Errorf("start %s: runs already as pid %d", p.name, p.run.cmd.Process.Pid)
	}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	r := &run{cmd: exec.Command(p.path, p.args...), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if p.tee != nil {
		both := io.MultiWriter(log, p.tee)
		r.cmd.Stdout, r.cmd.Stderr = both, both
	}
	r.cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		// The parent death signal is bound to the thread that forks, so this
		// thread has to live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close() // what matters is written by the child
		if err := r.cmd.Start(); err != nil {
			started <- err
			return
		}
		close(started)
		r.err = r.cmd.Wait()
		close(r.done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	p.run, p.paused = r, false
	return nil
}

func (r *run) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// Stop ends the program with SIGTERM, after Grace with SIGKILL, and waits for
// its end. It is fine to stop what does not run.
func (p *Process) Stop() error { return p.stop(syscall.SIGTERM) }

// Kill ends the program with SIGKILL and waits for its end.
func (p *Process) Kill() error { return p.stop(syscall.SIGKILL) }

func (p *Process) stop(signal syscall.Signal) error {
	p.mu.Lock()
	r := p.run
	paused := p.paused
	p.paused = false
	p.mu.Unlock()
	if r == nil || r.ended() {
		return nil
	}
	if err := r.signal(signal); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	if paused {
		if err := r.signal(syscall.SIGCONT); err != nil {
			return fmt.Errorf("resume %s: %w", p.name, err)
		}
	}
	select {
	case <-r.done:
		return nil
	case <-time.After(p.Grace):
	}
	if err := r.signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", p.name, err)
	}
	<-r.done
	return nil
}

// signal sends a signal; a process that has ended already is no error.
func (r *run) signal(s syscall.Signal) error {
	if err := r.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Pause freezes the program with SIGSTOP: its connections stay open, nothing answers.
func (p *Process) Pause() error { return p.freeze(syscall.SIGSTOP) }

// Resume lets a paused program go on.
func (p *Process) Resume() error { return p.freeze(syscall.SIGCONT) }

func (p *Process) freeze(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil || p.run.ended() {
		return fmt.Errorf("signal %s to %s: it does not run", s, p.name)
	}
	if err := p.run.signal(s); err != nil {
		return fmt.Errorf("signal %s to %s: %w", s, p.name, err)
	}
	p.paused = s == syscall.SIGSTOP
	return nil
}

// PID of the running program, 0 when it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil || p.run.ended() {
		return 0
	}
	return p.run.cmd.Process.Pid
}

// Exited returns a channel that is closed when the present life of the
// program has ended. It is closed already when the program was never started.
func (p *Process) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		ended := make(chan struct{})
		close(ended)
		return ended
	}
	return p.run.done
}

// LogPath is the file that the program's output is appended to.
func (p *Process) LogPath() string { return p.logPath }

// failure describes why the program is of no use, with the end of its log.
func (p *Process) failure(err error) error {
	return fmt.Errorf("%s: %w\n%s", p.name, err, p.logTail(30))
}

func (p *Process) logTail(lines int) string {
	content, err := os.ReadFile(p.logPath)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	content = bytes.TrimRight(content, "\n")
	start := len(content)
	for range lines {
		if start = bytes.LastIndexByte(content[:start], '\n'); start < 0 {
			start = 0
			break
		}
	}
	return fmt.Sprintf("end of %s:\n%s", p.logPath, bytes.TrimLeft(content[start:], "\n"))
}
