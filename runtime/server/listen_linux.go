package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// listenBeside listens on an address that overlaps with that of old, so that
// not one connection is refused while one replaces the other. The port is
// shared between these two sockets only: others still find it in use.
func listenBeside(address string, old net.Listener) (net.Listener, error) {
	socket, ok := old.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("listen on %s: %w", address, syscall.EADDRINUSE)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if err := sharePort(raw, true); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	shared := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return sharePort(c, true) }}
	ln, err := shared.Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, errors.Join(err, sharePort(raw, false))
	}
	fresh, err := ln.(syscall.Conn).SyscallConn()
	if err == nil {
		err = errors.Join(sharePort(raw, false), sharePort(fresh, false))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", address, err), ln.Close())
	}
	return ln, nil
}

func sharePort(c syscall.RawConn, share bool) error {
	value := 0
	if share {
		value = 1
	}
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, value) })
	if err = errors.Join(err, set); err != nil {
		return fmt.Errorf("set SO_REUSEPORT: %w", err)
	}
	return nil
}
