package controlplane

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// port is a free TCP port of 127.0.0.1, kept from everybody else until it is
// released: a socket is bound to it that never listens, and the program it is
// meant for shares the port (SO_REUSEPORT). So a program that was stopped finds
// its port free when it is started again.
type port struct {
	fd     int
	number int
}

func reservePort() (*port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	unix.CloseOnExec(fd)
	number, err := bindShared(fd)
	if err != nil {
		unix.Close(fd) // nothing was written
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return &port{fd: fd, number: number}, nil
}

func bindShared(fd int) (int, error) {
	for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return 0, err
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	inet, ok := address.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("bound to a %T", address)
	}
	return inet.Port, nil
}

func (p *port) String() string { return strconv.Itoa(p.number) }

func (p *port) release() {
	unix.Close(p.fd) // nothing was written
}
