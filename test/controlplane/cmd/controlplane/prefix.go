package main

import (
	"bytes"
	"io"
)

// prefixWriter puts a name before each line.
type prefixWriter struct {
	to      io.Writer
	prefix  []byte
	partial []byte
}

func newPrefixWriter(to io.Writer, name string, coloured bool) *prefixWriter {
	prefix := name + " | "
	if coloured {
		prefix = "\x1b[36m" + name + " |\x1b[0m "
	}
	return &prefixWriter{to: to, prefix: []byte(prefix)}
}

// Write implements io.Writer. A line is passed on when it is complete.
func (w *prefixWriter) Write(b []byte) (int, error) {
	w.partial = append(w.partial, b...)
	for {
		end := bytes.IndexByte(w.partial, '\n')
		if end < 0 {
			return len(b), nil
		}
		line := append(append([]byte(nil), w.prefix...), w.partial[:end+1]...)
		w.partial = append(w.partial[:0], w.partial[end+1:]...)
		if _, err := w.to.Write(line); err != nil {
			return len(b), err
		}
	}
}
