package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

func (s *Server) logLevel(w http.ResponseWriter, _ *http.Request) {
	writeText(w, strconv.Itoa(s.sources.LogLevel())+"\n")
}

// setLogLevel takes the verbosity from the body, as a decimal number.
func (s *Server) setLogLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		http.Error(w, "request body too large", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(w, "error reading request body: "+err.Error(), http.StatusBadRequest)
		return
	}
	level, err := strconv.ParseUint(strings.TrimSpace(string(body)), 10, 31)
	if err == nil {
		err = s.sources.SetLogLevel(int(level))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	caller, _ := r.Context().Value(callerKey{}).(string)
	s.log.Info("Log level changed", "level", level, "user", caller)
	writeText(w, fmt.Sprintf("successfully set klog.logging.verbosity to %d\n", level))
}
