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
// not one connection is refused while one replaces the other. The port stays
// closed to everybody who does not ask for sharing with SO_REUSEPORT.
func listenBeside(address string, old net.Listener) (net.Listener, error) {
	socket, ok := old.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("listen on %s: %w", address, syscall.EADDRINUSE)
	}
	raw, err := socket.SyscallConn()
	if err == nil {
		err = sharePort("", "", raw)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	shared := net.ListenConfig{Control: sharePort}
	return shared.Listen(context.Background(), "tcp", address)
}

// connectionWaits tells whether a connection is made that was not accepted yet.
func connectionWaits(listener net.Listener) bool {
	socket, ok := listener.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false // it is closed
	}
	ready := 0
	err = raw.Control(func(fd uintptr) {
		// An error, such as an interruption, says the same as a connection: look again.
		ready, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	})
	return err == nil && ready != 0
}

// sharePort has the form of net.ListenConfig.Control.
func sharePort(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	if err = errors.Join(err, set); err != nil {
		return fmt.Errorf("set SO_REUSEPORT: %w", err)
	}
	return nil
}
