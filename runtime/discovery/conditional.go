package discovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Conditional wraps the transport of a discovery client, for rest.Config.Wrap:
// it keeps the last answer of each discovery document and asks the API server
// for a newer one only (If-None-Match), so that a poll that finds nothing new
// costs both sides next to nothing.
func Conditional(next http.RoundTripper) http.RoundTripper {
	return &conditional{next: next, documents: map[string]document{}}
}

type conditional struct {
	next http.RoundTripper

	mu        sync.Mutex
	documents map[string]document
}

// document is an answer that the server named.
type document struct {
	etag   string
	header http.Header
	body   []byte
}

// RoundTrip implements http.RoundTripper.
func (c *conditional) RoundTrip(request *http.Request) (*http.Response, error) {
	path := request.URL.Path
	if request.Method != http.MethodGet || !strings.HasSuffix(path, "/api") && !strings.HasSuffix(path, "/apis") {
		return c.next.RoundTrip(request)
	}
	key := path + " " + request.Header.Get("Accept")
	c.mu.Lock()
	known, ok := c.documents[key]
	c.mu.Unlock()
	if ok {
		request = request.Clone(request.Context())
		request.Header.Set("If-None-Match", known.etag)
	}
	response, err := c.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	switch {
	case response.StatusCode == http.StatusNotModified && ok:
		return known.answer(response)
	case response.StatusCode == http.StatusOK && response.Header.Get("ETag") != "":
		return c.keep(key, response)
	}
	return response, nil
}

// keep the document that response brings.
func (c *conditional) keep(key string, response *http.Response) (*http.Response, error) {
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read discovery document: %w", errors.Join(err, response.Body.Close()))
	}
	if err := response.Body.Close(); err != nil {
		return nil, fmt.Errorf("read discovery document: %w", err)
	}
	d := document{etag: response.Header.Get("ETag"), header: response.Header.Clone(), body: body}
	c.mu.Lock()
	c.documents[key] = d
	c.mu.Unlock()
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// answer as the server did when it sent the document.
func (d document) answer(response *http.Response) (*http.Response, error) {
	if err := response.Body.Close(); err != nil {
		return nil, fmt.Errorf("read discovery document: %w", err)
	}
	response.StatusCode, response.Status = http.StatusOK, "200 OK"
	response.Header = d.header.Clone()
	response.ContentLength = int64(len(d.body))
	response.Body = io.NopCloser(bytes.NewReader(d.body))
	return response, nil
}
