//go:build !linux

package controlplane

import "syscall"

// childAttributes put a child into a process group of its own, so that Ctrl-C
// reaches this process alone.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
