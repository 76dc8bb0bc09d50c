package bootstrapsigner

import (
	"crypto/hmac"
	"maps"
	"strings"

	"k8s.io/cluster-bootstrap/token/api"
)

// withSignatures returns data with these signatures, by key, and no others,
// and whether that changes it. Data itself is not changed.
func withSignatures(data, signatures map[string]string) (signed map[string]string, changed bool) {
	signed = make(map[string]string, len(data)+len(signatures))
	for key, value := range data {
		if !strings.HasPrefix(key, api.JWSSignatureKeyPrefix) {
			signed[key] = value
			continue
		}
		if wanted, ok := signatures[key]; !ok || !hmac.Equal([]byte(wanted), []byte(value)) {
			changed = true
		}
	}
	maps.Copy(signed, signatures)
	return signed, changed || len(signed) != len(data)
}
