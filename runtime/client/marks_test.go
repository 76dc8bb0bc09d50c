package client

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	pods        = schema.GroupResource{Resource: "pods"}
	deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}
)

func TestMarksKeepTheHighestVersion(t *testing.T) {
	tests := []struct {
		name    string
		records []string
		want    string
	}{
		{"nothing", nil, ""},
		{"one", []string{"7"}, "7"},
		{"higher replaces", []string{"9", "10"}, "10"},
		{"lower does not", []string{"10", "9"}, "10"},
		{"longer than any integer", []string{"99999999999999999999", "100000000000000000000"}, "100000000000000000000"},
		{"not a version", []string{"abc"}, ""},
		{"empty", []string{""}, ""},
		{"zero is none", []string{"0"}, ""},
		{"not a version after one", []string{"5", "x", "", "0", "06"}, "5"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := NewMarks()
			for _, version := range test.records {
				m.Record(pods, version)
			}
			if got := m.Snapshot()[pods]; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestMarksMergeAndSnapshot(t *testing.T) {
	m := NewMarks()
	m.Record(pods, "5")
	snapshot := m.Snapshot()
	m.Merge(map[schema.GroupResource]string{pods: "4", deployments: "8"})
	if want := (map[schema.GroupResource]string{pods: "5", deployments: "8"}); !maps.Equal(m.Snapshot(), want) {
		t.Errorf("got %v, want %v", m.Snapshot(), want)
	}
	if len(snapshot) != 1 {
		t.Errorf("an earlier snapshot changed: %v", snapshot)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for _, version := range []string{"1", "20", "300"} {
				m.Record(pods, version)
				m.Snapshot()
			}
		})
	}
	all.Wait()
	if got := m.Snapshot()[pods]; got != "300" {
		t.Errorf("got %q, want 300", got)
	}
}

func TestMarksOfAnswers(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"42"}}`
	tests := []struct {
		name               string
		method, path, body string
		code               int
		want               map[schema.GroupResource]string
	}{
		{"create", http.MethodPost, "/api/v1/namespaces/n/pods", pod, 201, map[schema.GroupResource]string{pods: "42"}},
		{"update", http.MethodPut, "/api/v1/namespaces/n/pods/a", pod, 200, map[schema.GroupResource]string{pods: "42"}},
		{"patch", http.MethodPatch, "/api/v1/namespaces/n/pods/a", pod, 200, map[schema.GroupResource]string{pods: "42"}},
		{"status", http.MethodPut, "/api/v1/namespaces/n/pods/a/status", pod, 200, map[schema.GroupResource]string{pods: "42"}},
		{"scale", http.MethodPut, "/apis/apps/v1/namespaces/n/deployments/a/scale",
			`{"kind":"Scale","metadata":{"name":"a","resourceVersion":"43"}}`, 200, map[schema.GroupResource]string{deployments: "43"}},
		{"delete answered with the object", http.MethodDelete, "/api/v1/namespaces/n/pods/a", pod, 200,
			map[schema.GroupResource]string{pods: "42"}},
		{"delete answered with a Status", http.MethodDelete, "/api/v1/namespaces/n/pods/a",
			`{"kind":"Status","metadata":{"name":"a","resourceVersion":"42"},"status":"Success"}`, 200, nil},
		{"eviction", http.MethodPost, "/api/v1/namespaces/n/pods/a/eviction",
			`{"kind":"Status","metadata":{},"status":"Success"}`, 201, nil},
		{"below a path", http.MethodPost, "/clusters/x/api/v1/namespaces/n/pods", pod, 201,
			map[schema.GroupResource]string{pods: "42"}},
		{"read", http.MethodGet, "/api/v1/namespaces/n/pods/a", pod, 200, nil},
		{"refused", http.MethodPost, "/api/v1/namespaces/n/pods", pod, 409, nil},
		{"dry run", http.MethodPost, "/api/v1/namespaces/n/pods?dryRun=All", pod, 201, nil},
		{"connection", http.MethodPost, "/api/v1/namespaces/n/pods/a/exec", pod, 200, nil},
		{"not a resource", http.MethodPost, "/debug/flags/v", pod, 200, nil},
		{"broken", http.MethodPost, "/api/v1/namespaces/n/pods", `{"metadata":`, 201, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			own, outer, inner := NewMarks(), NewMarks(), NewMarks()
			rt := &marksTransport{marks: own, prefix: "/clusters/x", next: roundTripper(
				func(*http.Request) (*http.Response, error) {
					return answer(test.code, "application/json", test.body), nil
				})}
			req := newRequest(t, test.method, "https://server"+test.path, nil)
			resp, err := rt.RoundTrip(req.WithContext(WithMarks(WithMarks(req.Context(), outer), inner)))
			if err != nil {
				t.Fatal(err)
			}
			for name, m := range map[string]*Marks{"client": own, "outer context": outer, "inner context": inner} {
				if !maps.Equal(m.Snapshot(), test.want) {
					t.Errorf("marks of the %s: %v, want %v", name, m.Snapshot(), test.want)
				}
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || string(body) != test.body {
				t.Errorf("the caller read %q, %v", body, err)
			}
		})
	}
}

func TestContextsMarksAreApart(t *testing.T) {
	parent := WithMarks(t.Context(), NewMarks())
	a, b := WithMarks(parent, NewMarks()), WithMarks(parent, NewMarks())
	if marksOf(a)[1] == marksOf(b)[1] {
		t.Error("two contexts with one parent share their marks")
	}
}

func TestBodyThatBreaksOffIsHandedOn(t *testing.T) {
	broken := errors.New("connection reset")
	body := &closeRecorder{Reader: io.MultiReader(strings.NewReader("half"), failingReader{broken})}
	rt := &marksTransport{marks: NewMarks(), next: roundTripper(func(*http.Request) (*http.Response, error) {
		resp := answer(200, "application/json", "")
		resp.Body = body
		return resp, nil
	})}
	resp, err := rt.RoundTrip(newRequest(t, http.MethodPost, "https://server/api/v1/namespaces/n/pods", nil))
	if err != nil {
		t.Fatal(err)
	}
	read, err := io.ReadAll(resp.Body)
	if string(read) != "half" || !errors.Is(err, broken) {
		t.Errorf("the caller read %q, %v; want the half and the error", read, err)
	}
	if _ = resp.Body.Close(); !body.closed {
		t.Error("the body was not closed")
	}
}
