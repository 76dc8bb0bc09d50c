package server

import (
	"net/url"
	"strconv"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
)

// controllersPath has the controllers, and one of them below it.
const controllersPath = "/debug/controllers"

func controllerPath(name string) string { return controllersPath + "/" + url.PathEscape(name) }

func controllerLink(name string) g.Node { return h.A(h.Href(controllerPath(name)), g.Text(name)) }

func headingLink(href, text string) g.Node { return h.A(h.Href(href), g.Text(text)) }

// The main parts of the pages.

func overview(d pageData) g.Node {
	verdict := toned(toneGood, "running", "All health checks pass")
	if problems := d.Problems(); problems > 0 {
		verdict = toned(toneBad, "failed", plural(problems, "problem", "problems"))
	}
	return g.Group{
		hero(
			h.Div(
				h.H1(g.Text(d.Role()), g.If(d.Cluster != "", g.Group{g.Text(" "), muted("on " + d.Cluster)})),
				h.P(h.Class("verdict"), verdict),
			),
			stateCounts(d.Counts),
		),
		alerts(d),
		h.Div(h.Class("cards"),
			card("leadership", headingLink("/debug/leader", "Leadership"), leadership(d)),
			card("configuration", headingLink("/configz", "Configuration"), configuration(d)),
		),
		card("controllers", headingLink(controllersPath, "Controllers"), controllerTable(d.Active), restingTable(d.Resting, false)),
		card("reloads", headingLink("/debug/reloads", "Last reloads"), reloadTable(d.Reloads),
			g.If(d.MoreReloads > 0, more(headingLink("/debug/reloads", plural(d.MoreReloads, "earlier reload", "earlier reloads"))))),
		card("informers", headingLink("/debug/informers", "Informers"), informerTable(d.Informers)),
	}
}

func controllersMain(d pageData) g.Node {
	return g.Group{
		hero(h.H1(g.Text("Controllers")), stateCounts(d.Counts)),
		plainCard("Controllers", controllerTable(d.Active), restingTable(d.Resting, true)),
		asJSON(controllersPath + "?format=json"),
	}
}

func controllerMain(d pageData) g.Node {
	c := d.Controller
	if c == nil {
		return nil
	}
	since := g.Text(nothing)
	if c.Since != nil {
		since = ago(*c.Since)
	}
	used := g.Text("none")
	if len(c.Informers) > 0 {
		used = g.Text(strings.Join(c.Informers, ", "))
	}
	busy := g.Text("none")
	if c.Workers.Wanted > 0 {
		busy = workers(c.Workers.Busy, c.Workers.Running, c.Workers.Wanted)
	}
	seconds := func(s float64) g.Node { return g.Text(strconv.FormatFloat(s, 'g', -1, 64) + " s") }
	var all g.Group
	all = append(all, hero(h.H1(g.Text(c.Name)), h.Ul(h.Class("counts"), h.Li(stateOf(c.State)))))
	if c.LastError != "" {
		all = append(all, alert(toneBad, "last-error", false, "Last error", h.P(g.Text(c.LastError))))
	}
	all = append(all, h.Div(h.Class("cards"),
		card("state", g.Text("Life"), h.Dl(
			entry("Since", since),
			entry("Why", or(c.Reason, nothing)),
			entry("Restarts", number(c.Restarts)),
			entry("Informers", used),
		)),
		card("work", g.Text("Work"), h.Dl(
			entry("Workers", busy),
			entry("Waiting keys", number(c.Queue.Depth)),
			entry("Oldest key", seconds(c.Queue.OldestSeconds)),
			entry("Longest run", seconds(c.LongestSeconds)),
			entry("Last failed run", or(c.LastReconcileError, "none")),
		)),
	))
	if c.Config != nil {
		all = append(all, card("config", g.Text("Configuration"), yamlOf(c.Config)))
	}
	if c.Summary != nil {
		all = append(all, card("summary", g.Text("Summary"), yamlOf(c.Summary)))
	}
	path := controllerPath(c.Name)
	return append(all, more(
		g.If(c.Debug, g.Group{h.A(h.Href(path+"/"), g.Text("Debug handler of this controller")), g.Text(" · ")}),
		h.A(h.Href(path+"?format=json"), g.Text("This page as JSON"))))
}

func reloadsMain(d pageData) g.Node {
	return g.Group{
		hero(h.H1(g.Text("Reloads"))),
		configAlerts(d),
		plainCard("Reloads", reloadTable(d.Reloads)),
		asJSON("/debug/reloads?format=json"),
	}
}

func informersMain(d pageData) g.Node {
	return g.Group{
		hero(h.H1(g.Text("Informers"))),
		plainCard("Informers", informerTable(d.Informers)),
		asJSON("/debug/informers?format=json"),
	}
}

func leaderMain(d pageData) g.Node {
	return g.Group{
		hero(h.H1(g.Text(d.Role()))),
		plainCard("Leadership", leadership(d)),
		asJSON("/debug/leader?format=json"),
	}
}

func configMain(d pageData) g.Node {
	all := g.Group{
		hero(h.H1(g.Text("Configuration"))),
		configAlerts(d),
		plainCard("File", configuration(d)),
	}
	if changed := d.Changed(); len(changed) > 0 {
		const heading = "Values that are not defaults"
		all = append(all, card("changed", g.Text(heading), scroll(heading,
			columns("Value", "Set by"),
			h.TBody(g.Map(changed, func(o origin) g.Node {
				return h.Tr(rowHead(g.Text(o.Path)), h.Td(g.Text(o.Origin.String())))
			})))))
	}
	if d.Config != nil && d.Config.Config != nil {
		all = append(all, card("running", g.Text("What runs"), yamlOf(d.Config.Config)))
	}
	link := func(href, text string) g.Node { return h.A(h.Href(href), g.Text(text)) }
	return append(all, more(
		link("/configz?format=yaml", "As a file"), g.Text(" · "), link("/configz?format=json", "As JSON"), g.Text(" · "),
		link("/configz/status?format=json", "Origins and status as JSON")))
}
