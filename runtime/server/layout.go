package server

import (
	"fmt"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// Pictures, which are the same on every page.
const (
	favicon = `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' ` +
		`stroke='%231b7f9c' stroke-width='2' stroke-linecap='round'%3E%3Cpath d='M12 1.5v21M1.5 12h21M4.6 4.6l14.8 14.8M19.4 ` +
		`4.6 4.6 19.4'/%3E%3Ccircle cx='12' cy='12' r='7'/%3E%3C/svg%3E`
	sprite = `<svg class="sprite" aria-hidden="true" focusable="false">
<symbol id="i-running" viewBox="0 0 12 12"><circle cx="6" cy="6" r="4.5" fill="currentColor"/></symbol>
<symbol id="i-standby" viewBox="0 0 12 12"><circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.6"/></symbol>
<symbol id="i-starting" viewBox="0 0 12 12"><circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.6"/>` +
		`<path d="M6 2v8a4 4 0 0 0 0-8" fill="currentColor"/></symbol>
<symbol id="i-stopping" viewBox="0 0 12 12"><circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.6"/>` +
		`<path d="M6 2v8a4 4 0 0 1 0-8" fill="currentColor"/></symbol>
<symbol id="i-waiting" viewBox="0 0 12 12"><circle cx="6" cy="6" r="4.2" fill="none" stroke="currentColor" stroke-width="1.4"/>` +
		`<path d="M6 3.4V6l1.8 1.3" fill="none" stroke="currentColor" stroke-width="1.3" stroke-linecap="round"/></symbol>
<symbol id="i-failed" viewBox="0 0 12 12"><path d="M6 1.2 11.4 10.8H.6z" fill="currentColor"/></symbol>
<symbol id="i-stuck" viewBox="0 0 12 12"><path d="M3.7 1h4.6L11 3.7v4.6L8.3 11H3.7L1 8.3V3.7z" fill="currentColor"/></symbol>
<symbol id="i-disabled" viewBox="0 0 12 12"><path d="M2.5 6h7" stroke="currentColor" stroke-width="1.8" stroke-linecap="round"/></symbol>
<symbol id="i-unavailable" viewBox="0 0 12 12"><path d="M2.5 6h7" stroke="currentColor" stroke-width="1.8" stroke-linecap="round"/></symbol>
</svg>`
	brand = `<svg viewBox="0 0 24 24" aria-hidden="true" focusable="false">` +
		`<path d="M12 1.5v21M1.5 12h21M4.6 4.6l14.8 14.8M19.4 4.6 4.6 19.4"/><circle cx="12" cy="12" r="7"/>` +
		`<circle class="hub" cx="12" cy="12" r="2.2"/></svg>`
)

// layout is a whole page around its main part.
func layout(d pageData, main g.Node) g.Node {
	title := d.Title + " · Wheelhouse"
	if problems := d.Problems(); problems > 0 {
		title = fmt.Sprintf("(%d) %s", problems, title)
	}
	return h.Doctype(h.HTML(h.Lang("en"),
		h.Head(
			h.Meta(h.Charset("utf-8")),
			h.Meta(h.Name("viewport"), h.Content("width=device-width, initial-scale=1")),
			h.Meta(h.Name("color-scheme"), h.Content("light dark")),
			h.TitleEl(g.Text(title)),
			h.Link(h.Rel("icon"), h.Href(favicon)),
			h.NoScript(h.Meta(g.Attr("http-equiv", "refresh"), h.Content("5"))),
			h.StyleEl(g.Raw(pageStyle)),
		),
		h.Body(
			h.A(h.Class("skip"), h.Href("#main"), g.Text("Skip to content")),
			g.Raw(sprite),
			banner(d.Path),
			h.Main(h.ID("main"), main, footer(d)),
			h.Script(g.Raw(pageScript)),
		),
	))
}

// banner is the top of each page, with the navigation.
func banner(path string) g.Node {
	link := func(page page, text string) g.Node {
		return h.A(h.Href(page.path), g.If(page.path == path, h.Aria("current", "page")), g.Text(text))
	}
	return h.Header(h.Class("top"), h.Div(h.Class("bar"),
		h.A(h.Class("brand"), h.Href("/"), g.Raw(brand), g.Text("Wheelhouse")),
		h.Nav(h.Aria("label", "Pages"),
			link(overviewPage, "Status"), link(controllersPage, "Controllers"), link(reloadsPage, "Reloads"),
			link(informersPage, "Informers"), link(leaderPage, "Leadership"), link(configPage, "Configuration"),
		),
		h.Div(h.Class("live"), h.ID("live"), g.Attr("hidden"),
			h.Span(h.ID("live-text"), h.Role("status")),
			h.Button(h.Type("button"), h.ID("live-button"), g.Text("Pause")),
		),
	))
}

func footer(d pageData) g.Node {
	certificate := d.Server.Certificate
	return h.Footer(
		h.Span(g.Text("Wheelhouse "+d.Version)),
		h.Span(g.Text("up for "+span(time.Since(d.Started)))),
		g.If(!certificate.NotAfter.IsZero(),
			h.Span(g.Text(fmt.Sprintf("%v certificate, valid for %s", certificate.Source, span(time.Until(certificate.NotAfter)))))),
		h.Span(g.Text("as of "), h.Time(h.DateTime(machine(d.Now)), g.Text(stamp(d.Now)))),
	)
}
