package server

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
)

// page is one HTML page: what it is called, its template, and where the
// navigation finds it.
type page struct {
	title    string
	template *template.Template
	// path in the navigation.
	path string
}

//go:embed pages
var pageFiles embed.FS

var (
	pageStyle  = mustRead("pages/style.css")
	pageScript = mustRead("pages/live.js")
	pagePolicy = "default-src 'none'; style-src '" + hashOf(pageStyle) + "'; script-src '" + hashOf(pageScript) +
		"'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	pageBase = template.Must(template.New("layout.html").Funcs(pageFuncs).ParseFS(pageFiles, "pages/layout.html", "pages/parts.html"))

	overviewPage    = newPage("Status", "overview.html", "/")
	controllersPage = newPage("Controllers", "controllers.html", "/debug/controllers")
	controllerPage  = newPage("Controller", "controller.html", "/debug/controllers")
	reloadsPage     = newPage("Reloads", "reloads.html", "/debug/reloads")
	informersPage   = newPage("Informers", "informers.html", "/debug/informers")
	leaderPage      = newPage("Leadership", "leader.html", "/debug/leader")
	configPage      = newPage("Configuration", "config.html", "/configz")
)

func newPage(title, file, path string) page {
	t := template.Must(template.Must(pageBase.Clone()).ParseFS(pageFiles, "pages/"+file))
	return page{title: title, template: t, path: path}
}

func mustRead(name string) string {
	content, err := pageFiles.ReadFile(name)
	if err != nil {
		panic(err) //nolint:forbidigo // a programmer's error
	}
	return string(content)
}

func hashOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (s *Server) statusPage(w http.ResponseWriter, r *http.Request) { s.render(w, r, overviewPage) }

func (s *Server) render(w http.ResponseWriter, r *http.Request, p page) {
	var body bytes.Buffer
	if err := p.template.Execute(&body, s.pageData(r, p)); err != nil {
		http.Error(w, fmt.Sprintf("render the page: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	// The caller may have gone; nobody is left to tell.
	_, _ = w.Write(body.Bytes())
}
