// Package informers lends shared informers to controllers: one per resource
// in the process, started by its first user and stopped after its last.
package informers

// Status of one informer.
type Status struct {
	Resource string `json:"resource"`
	// Metadata is true when only object metadata is kept.
	Metadata bool     `json:"metadata"`
	Users    []string `json:"users"`
	Objects  int      `json:"objects"`
	Synced   bool     `json:"synced"`
	// ResourceVersion up to which the store is current.
	ResourceVersion string `json:"resourceVersion"`
	// LastError of its list or watch, empty when it works.
	LastError string `json:"lastError,omitempty"`
}
