package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// auditPolicy logs every request for resources twice, when it was received and
// when it was answered. Deletes and lease updates come with their bodies, for
// preconditions, propagation policies and renewals.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ["*"]
- level: Request
  verbs: [delete, deletecollection]
- level: Request
  verbs: [create, update, patch]
  resources:
  - group: coordination.k8s.io
    resources: [leases]
- level: Metadata
`

// AuditLog is the API server's record of the requests it got, from all
// clients. An entry of stage ResponseComplete is written a moment after its
// client has the answer, so wait for what is expected rather than read once.
type AuditLog struct{ path string }

// AuditPosition is a place in the log. The zero value is its start.
type AuditPosition int64

// Position returns the end of the last complete entry. One that is being
// written just now comes after it.
func (l *AuditLog) Position() (AuditPosition, error) {
	file, err := os.Open(l.path)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the audit log: %w", err)
	}
	defer file.Close() // only read
	info, err := file.Stat()
	if err != nil {
		return 0, fmt.Errorf("read the audit log: %w", err)
	}
	chunk := make([]byte, 64<<10)
	for end := info.Size(); end > 0; {
		start := max(0, end-int64(len(chunk)))
		content := chunk[:end-start]
		if _, err := file.ReadAt(content, start); err != nil {
			return 0, fmt.Errorf("read the audit log at byte %d: %w", start, err)
		}
		if i := bytes.LastIndexByte(content, '\n'); i >= 0 {
			return AuditPosition(start + int64(i) + 1), nil
		}
		end = start
	}
	return 0, nil
}

// complete removes an entry that an API server could not finish before it was
// killed; the next one would write on behind it. A nil log has none.
func (l *AuditLog) complete() error {
	if l == nil {
		return nil
	}
	end, err := l.Position()
	if err != nil {
		return err
	}
	if err := os.Truncate(l.path, int64(end)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove the unfinished end of the audit log: %w", err)
	}
	return nil
}

// Entries returns the log's complete entries from a position on, in the order
// in which the API server wrote them, and the position behind the last one.
func (l *AuditLog) Entries(from AuditPosition) ([]auditv1.Event, AuditPosition, error) {
	file, err := os.Open(l.path)
	if os.IsNotExist(err) {
		return nil, from, nil
	}
	if err != nil {
		return nil, from, fmt.Errorf("read the audit log: %w", err)
	}
	defer file.Close() // only read
	content, err := io.ReadAll(io.NewSectionReader(file, int64(from), 1<<62))
	if err != nil {
		return nil, from, fmt.Errorf("read the audit log: %w", err)
	}
	var entries []auditv1.Event
	for {
		end := bytes.IndexByte(content, '\n')
		if end < 0 {
			return entries, from, nil
		}
		var entry auditv1.Event
		if err := json.Unmarshal(content[:end], &entry); err != nil {
			return nil, from, fmt.Errorf("read the audit log at byte %d: %w", from, err)
		}
		entries = append(entries, entry)
		content = content[end+1:]
		from += AuditPosition(end + 1)
	}
}

// Requests returns one entry for each request that was answered (or, for a
// watch, begun) from a position on and that match accepts. A nil match accepts all.
func (l *AuditLog) Requests(from AuditPosition, match func(auditv1.Event) bool) ([]auditv1.Event, error) {
	entries, _, err := l.Entries(from)
	if err != nil {
		return nil, err
	}
	var requests []auditv1.Event
	for _, entry := range entries {
		last := auditv1.StageResponseComplete
		if entry.Verb == "watch" {
			last = auditv1.StageResponseStarted
		}
		if entry.Stage == last && (match == nil || match(entry)) {
			requests = append(requests, entry)
		}
	}
	return requests, nil
}
