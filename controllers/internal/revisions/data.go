// Package revisions keeps the pod templates that an owner has had as
// ControllerRevisions: what `kubectl rollout history` and `undo` read, and what
// tells by which template a pod was made.
//
// Which revisions an owner has is found with ownerindex.Candidates on a store
// with ownerindex.Controllers, and settled with claim.Claims and
// claim.PatchControllerRevision.
package revisions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// Data returns what a revision stores of template: the strategic merge patch
// that gives an owner this template. Equal templates have equal bytes, also in
// revisions that kube-controller-manager has made, as long as the API types
// encode alike; see SameTemplate.
func Data(template *v1.PodTemplateSpec) ([]byte, error) {
	encoded, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("encode pod template: %w", err)
	}
	// By way of a map the keys get sorted, which is part of the format.
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		return nil, fmt.Errorf("decode pod template: %w", err)
	}
	fields["$patch"] = "replace"
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
	if err != nil {
		return nil, fmt.Errorf("encode revision data: %w", err)
	}
	return data, nil
}

// Template returns the template that data, made by Data, stores. It fails for
// data without a template.
func Template(data []byte) (*v1.PodTemplateSpec, error) {
	var patch struct {
		Spec struct {
			Template *v1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		return nil, fmt.Errorf("decode revision data: %w", err)
	}
	if patch.Spec.Template == nil {
		return nil, fmt.Errorf("decode revision data: it has no pod template")
	}
	return patch.Spec.Template, nil
}

// SameTemplate tells whether stored, encoded as the API types encode today, is
// data. So a revision that was made when they encoded otherwise, such as with
// "creationTimestamp":null, still stands for its template; and so does one whose
// numbers beyond 2^53 kube-controller-manager has rounded. False if stored
// cannot be decoded.
func SameTemplate(stored, data []byte) bool {
	if bytes.Equal(stored, data) || bytes.Equal(stored, rounded(data)) {
		return true
	}
	template, err := Template(stored)
	if err != nil {
		return false
	}
	again, err := Data(template)
	return err == nil && bytes.Equal(again, data)
}

// rounded returns data with numbers that have gone through 64 bit floats, as in
// the revisions that kube-controller-manager makes for StatefulSets. Nil if data
// is no JSON.
func rounded(data []byte) []byte {
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return nil
	}
	again, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return again
}

// HashData returns the hash in the name of a StatefulSet's revision: FNV-1 (32
// bit) of data and the decimal collisionCount, in characters that may stand in
// a name. Those of DaemonSets have templatehash.Compute. Names alone are made
// from hashes; data decides what is equal.
func HashData(data []byte, collisionCount int32) string {
	hash := fnv.New32()
	_, _ = hash.Write(data) // a hash.Hash never returns an error
	_, _ = hash.Write(strconv.AppendInt(nil, int64(collisionCount), 10))
	return rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10))
}
