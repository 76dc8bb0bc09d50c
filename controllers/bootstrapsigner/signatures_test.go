package bootstrapsigner

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithSignatures(t *testing.T) {
	t.Parallel()
	type data = map[string]string
	for _, test := range []struct {
		name             string
		data, signatures data
		want             data
		changed          bool
	}{
		{"none", data{"kubeconfig": "x"}, nil, data{"kubeconfig": "x"}, false},
		{"new", data{"kubeconfig": "x"}, data{"jws-kubeconfig-a": "1"}, data{"kubeconfig": "x", "jws-kubeconfig-a": "1"}, true},
		{"the same", data{"kubeconfig": "x", "jws-kubeconfig-a": "1"}, data{"jws-kubeconfig-a": "1"},
			data{"kubeconfig": "x", "jws-kubeconfig-a": "1"}, false},
		{"another", data{"jws-kubeconfig-a": "1"}, data{"jws-kubeconfig-a": "2"}, data{"jws-kubeconfig-a": "2"}, true},
		{"one goes", data{"a": "b", "jws-kubeconfig-a": "1"}, nil, data{"a": "b"}, true},
		{"one goes, one comes", data{"jws-kubeconfig-a": "1"}, data{"jws-kubeconfig-b": "2"}, data{"jws-kubeconfig-b": "2"}, true},
		{"an empty one", data{"jws-kubeconfig-a": ""}, data{"jws-kubeconfig-a": ""}, data{"jws-kubeconfig-a": ""}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before := maps.Clone(test.data)
			got, changed := withSignatures(test.data, test.signatures)
			if diff := cmp.Diff(test.want, got); diff != "" || changed != test.changed {
				t.Errorf("changed %t, want %t; data (-want +got):\n%s", changed, test.changed, diff)
			}
			if diff := cmp.Diff(before, test.data); diff != "" {
				t.Errorf("the data itself was changed:\n%s", diff)
			}
		})
	}
}

// Nothing but signatures changes, and a second look changes nothing.
func FuzzWithSignatures(f *testing.F) {
	f.Add("kubeconfig", "jws-kubeconfig-a", "x", "b")
	f.Add("jws-kubeconfig-", "jws-kubeconfig-b", "", "b")
	f.Fuzz(func(t *testing.T, first, second, value, id string) {
		data := map[string]string{first: value, second: value}
		signatures := map[string]string{"jws-kubeconfig-" + id: "signature"}
		signed, _ := withSignatures(data, signatures)
		for key, value := range data {
			if len(key) < len("jws-kubeconfig-") || key[:len("jws-kubeconfig-")] != "jws-kubeconfig-" {
				if got, ok := signed[key]; !ok || got != value {
					t.Fatalf("%q was %q and is %q", key, value, got)
				}
			}
		}
		if again, changed := withSignatures(signed, signatures); changed {
			t.Fatalf("a second look changes %v to %v", signed, again)
		}
	})
}
