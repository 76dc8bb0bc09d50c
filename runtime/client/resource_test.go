package client

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestResourceOf(t *testing.T) {
	tests := []struct{ path, group, resource string }{
		{"/api/v1/nodes", "", "nodes"},
		{"/api/v1/nodes/n/status", "", "nodes"},
		{"/api/v1/namespaces", "", "namespaces"},
		{"/api/v1/namespaces/n", "", "namespaces"},
		{"/api/v1/namespaces/n/status", "", "namespaces"},
		{"/api/v1/namespaces/n/finalize", "", "namespaces"},
		{"/api/v1/namespaces/n/pods", "", "pods"},
		{"/api/v1/namespaces/n/pods/p", "", "pods"},
		{"/api/v1/namespaces/n/pods/p/binding", "", "pods"},
		{"/api/v1/namespaces/n/serviceaccounts/s/token", "", "serviceaccounts"},
		{"/apis/apps/v1/namespaces/n/deployments/d/scale", "apps", "deployments"},
		{"/apis/example.com/v1beta1/things/t", "example.com", "things"},
		{"/apis/example.com/v1beta1/namespaces/n/things/t/status", "example.com", "things"},
		{"api/v1/nodes/", "", "nodes"},
	}
	for _, test := range tests {
		got, ok := resourceOf(test.path)
		if !ok || got.Group != test.group || got.Resource != test.resource {
			t.Errorf("%s: %v, %t; want %s in group %q", test.path, got, ok, test.resource, test.group)
		}
	}
	for _, path := range []string{"", "/", "/api", "/api/v1", "/api/v1/", "/apis/apps/v1", "/healthz", "/openapi/v3/apis/apps/v1",
		"/api/v1/namespaces/n/pods/p/exec", "/api/v1/namespaces/n/services/s/proxy/a/b", "/api/v1/watch/pods"} {
		if got, ok := resourceOf(path); ok {
			t.Errorf("%s: %v, want none", path, got)
		}
	}
}

// The API server's own reading of a path is the reference.
func FuzzResourceOf(f *testing.F) {
	f.Add("/api/v1/namespaces/n/pods/p/status")
	f.Add("/apis/apps/v1/namespaces/n/deployments/d/scale")
	f.Add("/api/v1/namespaces/n/finalize")
	f.Add("/apis/g/v1/namespaces/n/status/x")
	f.Add("/apis/g/v1//things")
	factory := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	f.Fuzz(func(t *testing.T, path string) {
		got, ok := resourceOf(path)
		if !ok {
			return
		}
		info, err := factory.NewRequestInfo(&http.Request{Method: http.MethodPut, URL: &url.URL{Path: path}})
		if err != nil {
			t.Fatalf("%q: found %v, the API server refuses it: %v", path, got, err)
		}
		if !info.IsResourceRequest || info.APIGroup != got.Group || info.Resource != got.Resource {
			t.Fatalf("%q: found %v, the API server finds %q in %q", path, got, info.Resource, info.APIGroup)
		}
	})
}
