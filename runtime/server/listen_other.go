//go:build !linux

package server

import (
	"fmt"
	"net"
	"syscall"
)

// listenBeside cannot share a port here.
func listenBeside(address string, _ net.Listener) (net.Listener, error) {
	return nil, fmt.Errorf("listen on %s: %w", address, syscall.EADDRINUSE)
}

// connectionWaits is not known here.
func connectionWaits(net.Listener) bool { return false }
