package ownslices_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownslices"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/unsettled"
)

// A 404 of something before the API server does not mean that a slice is gone:
// were it taken for deleted, what it lists would never be looked at again.
func TestDeleteBelievesTheAPIServerAlone(t *testing.T) {
	for name, test := range map[string]struct {
		contentType, body string
		gone              bool
	}{
		"the API server": {"application/json",
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"web-1"}}`, true},
		"a proxy": {"text/html", "<html>404</html>", false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.contentType)
			w.WriteHeader(http.StatusNotFound)
			if _, err := w.Write([]byte(test.body)); err != nil {
				t.Error(err)
			}
		}))
		t.Cleanup(server.Close)
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		tracker := ownslices.NewTracker()
		writer := &ownslices.Writer{
			Client: client.DiscoveryV1(), Tracker: tracker, Count: func(string) {},
			Unsure: unsettled.New(func(context.Context, time.Time) error { return nil }, clocktesting.NewFakePassiveClock(time.Now())),
		}
		slice := newSlice("web-1", "web", manager)
		err = writer.Delete(t.Context(), web, slice)
		if deleted := tracker.Deleted(web, slice.UID); (err == nil) != test.gone || deleted != test.gone {
			t.Errorf("404 of %s: %v, taken for deleted: %t", name, err, deleted)
		}
	}
}
