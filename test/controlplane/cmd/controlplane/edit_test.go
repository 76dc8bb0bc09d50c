package main

import (
	"strings"
	"testing"
)

const document = `# A comment.
cluster:
  name: kubernetes

  # The path.
  kubeconfig: ""
server: {port: 1}
list:
- a
paths: [/healthz, /readyz]
`

func TestEdit(t *testing.T) {
	t.Parallel()
	got, err := edit([]byte(document), map[string]string{"cluster.kubeconfig": `"/k"`, "paths": "[/]"})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(`kubeconfig: ""`, `kubeconfig: "/k"`, "[/healthz, /readyz]", "[/]").Replace(document)
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEditRefuses(t *testing.T) {
	t.Parallel()
	for path, message := range map[string]string{
		"cluster.nothing": "it has no cluster.nothing",
		"list":            "line 9: the value of list is not on one line",
		"cluster":         "line 3: the value of cluster is not on one line",
		"paths.below":     "it has no paths.below",
	} {
		if _, err := edit([]byte(document), map[string]string{path: "x"}); err == nil || err.Error() != message {
			t.Errorf("%s: got error %v, want %s", path, err, message)
		}
	}
}
