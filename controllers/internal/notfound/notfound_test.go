package notfound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
)

// answer to a request for a Secret, as client-go reads it.
func answer(t *testing.T, code int, contentType, body string) error {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		if _, err := io.WriteString(w, body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = client.CoreV1().Secrets("n").Get(t.Context(), "s", metav1.GetOptions{}); err == nil {
		t.Fatal("no error")
	}
	return err
}

func TestByAPIServer(t *testing.T) {
	t.Parallel()
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"%s","code":%d,"details":{"name":"s","kind":"secrets"}}`
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"the API server's": {answer(t, 404, "application/json", fmt.Sprintf(status, "NotFound", 404)), true},
		"wrapped":          {fmt.Errorf("get: %w", answer(t, 404, "application/json", fmt.Sprintf(status, "NotFound", 404))), true},
		"a proxy's":        {answer(t, 404, "text/html", "<html>404</html>"), false},
		"a path of nobody": {answer(t, 404, "text/plain", "404 page not found\n"), false},
		"a conflict":       {answer(t, 409, "application/json", fmt.Sprintf(status, "Conflict", 409)), false},
		"another error":    {errors.New("not found"), false},
		"no answer":        {context.DeadlineExceeded, false},
		"none":             {nil, false},
	} {
		if got := notfound.ByAPIServer(test.err); got != test.want {
			t.Errorf("%s: %t, want %t: %v", name, got, test.want, test.err)
		}
	}
}
