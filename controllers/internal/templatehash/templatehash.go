// Package templatehash names pod templates: the same template gets the same
// short hash. Names are made from it; whether two templates are equal is
// decided by comparing them, since the hash changes whenever a release of the
// API adds a field.
package templatehash

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

// Compute returns the hash of template, in characters that may stand in a
// name: FNV-1a (32 bit) of the template's dump, then of collisionCount if
// there is one, as Deployments and DaemonSets have named their parts since
// collision counts exist.
func Compute(template *v1.PodTemplateSpec, collisionCount *int32) string {
	hash := fnv.New32a()
	_, _ = fmt.Fprint(hash, dump.ForHash(*template)) // a hash.Hash never returns an error
	if collisionCount != nil {
		// Eight bytes although four are used: the format of the first release.
		var count [8]byte
		binary.LittleEndian.PutUint32(count[:], uint32(*collisionCount))
		_, _ = hash.Write(count[:])
	}
	return rand.SafeEncodeString(fmt.Sprint(hash.Sum32()))
}
