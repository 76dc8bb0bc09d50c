package client

import "net/http"

// byContext is embedded by transports whose requests end with their context.
type byContext struct{}

// CancelRequest has nothing to do. client-go calls it beside cancelling the
// context, and warns of a transport that has neither it nor a transport that
// it wraps.
func (byContext) CancelRequest(*http.Request) {}
