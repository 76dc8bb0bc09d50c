package client

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resourceOf returns the resource that the path of a request for one of its
// objects, or for a subresource of one, belongs to. It is false for other
// paths, and for subresources that are connections rather than objects.
func resourceOf(path string) (schema.GroupResource, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var group string
	switch {
	case parts[0] == "api" && len(parts) > 2: // api/VERSION/…
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3: // apis/GROUP/VERSION/…
		group, parts = parts[1], parts[3:]
	default:
		return schema.GroupResource{}, false
	}
	// namespaces/NAME/RESOURCE/…, but namespaces/NAME/status belongs to the namespace.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	if len(parts) > 2 {
		switch parts[2] {
		case "proxy", "exec", "attach", "portforward", "log":
			return schema.GroupResource{}, false
		}
	}
	switch parts[0] {
	case "", "watch", "proxy": // the last two were verbs once
		return schema.GroupResource{}, false
	}
	return schema.GroupResource{Group: group, Resource: parts[0]}, true
}
