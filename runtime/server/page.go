package server

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"

	g "maragu.dev/gomponents"
)

// page is one HTML page: what it is called, its main part, and where the
// navigation finds it. Pages are functions and not templates, which call
// methods by name: for that the linker would keep every exported method of
// every type, a third of the binary, and most of it is resident.
type page struct {
	title string
	main  func(pageData) g.Node
	// path in the navigation.
	path string
}

var (
	//go:embed pages/style.css
	pageStyle string
	//go:embed pages/live.js
	pageScript string

	pagePolicy = "default-src 'none'; style-src '" + hashOf(pageStyle) + "'; script-src '" + hashOf(pageScript) +
		"'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

	overviewPage    = page{"Status", overview, "/"}
	controllersPage = page{"Controllers", controllersMain, controllersPath}
	controllerPage  = page{"Controller", controllerMain, controllersPath}
	reloadsPage     = page{"Reloads", reloadsMain, "/debug/reloads"}
	informersPage   = page{"Informers", informersMain, "/debug/informers"}
	leaderPage      = page{"Leadership", leaderMain, "/debug/leader"}
	configPage      = page{"Configuration", configMain, "/configz"}
)

func hashOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (s *Server) statusPage(w http.ResponseWriter, r *http.Request) { s.render(w, r, overviewPage) }

func (s *Server) render(w http.ResponseWriter, r *http.Request, p page) {
	var body bytes.Buffer
	data := s.pageData(r, p)
	if err := layout(data, p.main(data)).Render(&body); err != nil {
		http.Error(w, fmt.Sprintf("render the page: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	// The caller may have gone; nobody is left to tell.
	_, _ = w.Write(body.Bytes())
}
