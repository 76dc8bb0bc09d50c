// Package election keeps this process standing for the lease, tells when it
// leads, and says until when its writes are safe.
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
