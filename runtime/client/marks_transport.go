package client

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// marksTransport records the resourceVersions that writes are answered with.
// A DELETE counts when it is answered with the object; one that is answered
// with a Status tells no version.
type marksTransport struct {
	byContext

	marks *Marks
	// prefix of all paths, when the API server is not at the root of its host.
	prefix string
	next   http.RoundTripper
}

func (t *marksTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || !mutating(req) || resp.StatusCode < 200 || resp.StatusCode > 299 || dryRun(req) {
		return resp, err
	}
	resource, ok := resourceOf(strings.TrimPrefix(req.URL.Path, t.prefix))
	if !ok {
		return resp, nil
	}
	body, err := readAll(resp)
	if err != nil {
		// The caller reads as far as this went, and meets the same error.
		resp.Body = &readBody{Reader: io.MultiReader(bytes.NewReader(body), failingReader{err}), Closer: resp.Body}
		return resp, nil //nolint:nilerr // the body says it
	}
	resp.Body = &readBody{Reader: bytes.NewReader(body), Closer: resp.Body}
	version := resourceVersionOf(resp.Header.Get("Content-Type"), body)
	if version == "" {
		return resp, nil
	}
	t.marks.Record(resource, version)
	for _, marks := range marksOf(req.Context()) {
		marks.Record(resource, version)
	}
	return resp, nil
}

// Most answers are one object. Room for it is made at once, but never more than
// largeAnswer, as the header may claim anything.
const (
	usualAnswer = 4 << 10
	largeAnswer = 1 << 20
)

// readAll is io.ReadAll without its many small steps.
func readAll(resp *http.Response) ([]byte, error) {
	size := resp.ContentLength
	if size < 0 {
		size = usualAnswer
	}
	body := bytes.NewBuffer(make([]byte, 0, min(size, largeAnswer)+bytes.MinRead))
	_, err := body.ReadFrom(resp.Body)
	return body.Bytes(), err
}

func dryRun(req *http.Request) bool {
	return strings.Contains(req.URL.RawQuery, "dryRun=")
}

// readBody is a body that was read already.
type readBody struct {
	io.Reader
	io.Closer
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }
