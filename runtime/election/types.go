// Package election keeps this process standing for the lease, tells when it
// leads, and says until when its writes are safe.
//
// The elector of client-go writes the Lease. Around it this package adds what a
// process needs that outlives its leadership: a watch, by which a candidate
// notices a release at once and an expiry to the second; the fence; a change of
// timings without losing the lease; the hand-over of the last writes; and a new
// candidacy after each loss.
package election

import "time"

// Status of the election as this process sees it.
type Status struct {
	// Leader is true while this process leads.
	Leader   bool   `json:"leader"`
	Identity string `json:"identity"`
	// Holder of the lease, empty when nobody holds it.
	Holder      string    `json:"holder"`
	AcquiredAt  time.Time `json:"acquiredAt"`
	RenewedAt   time.Time `json:"renewedAt"`
	Transitions int       `json:"transitions"`
	// FencedRequests were refused locally because the lease may have expired.
	FencedRequests int64 `json:"fencedRequests"`
}
