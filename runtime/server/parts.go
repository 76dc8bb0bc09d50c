package server

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"
	"sigs.k8s.io/yaml"

	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// nothing stands where there is no value.
const nothing = "–"

func or(text, otherwise string) g.Node {
	if text == "" {
		text = otherwise
	}
	return g.Text(text)
}

func number(n int) g.Node { return g.Text(strconv.Itoa(n)) }

func muted(text string) g.Node { return h.Span(h.Class("muted"), g.Text(text)) }

// hero is the top of a page's main part.
func hero(children ...g.Node) g.Node { return h.Div(h.Class("hero"), g.Group(children)) }

// card is a section whose heading is above it; id names it on the page.
func card(id string, heading g.Node, children ...g.Node) g.Node {
	return h.Section(h.Class("card"), h.Aria("labelledby", id), h.H2(h.ID(id), heading), g.Group(children))
}

// plainCard is a section without a heading.
func plainCard(label string, children ...g.Node) g.Node {
	return h.Section(h.Class("card"), h.Aria("label", label), g.Group(children))
}

// alert is a section that is seen first; tone is bad or warn.
func alert(tone, id string, icon bool, heading string, children ...g.Node) g.Node {
	return h.Section(h.Class("alert "+tone), h.Aria("labelledby", id),
		h.H2(h.ID(id), g.If(icon, use("failed")), g.Text(heading)), g.Group(children))
}

// scroll holds a table that may be too wide.
func scroll(label string, table ...g.Node) g.Node {
	return h.Div(h.Class("scroll"), h.Role("region"), h.Aria("label", label), h.TabIndex("0"), h.Table(table...))
}

// columns are the head of a table; names that begin with # are those of numbers.
func columns(names ...string) g.Node {
	return h.THead(h.Tr(g.Map(names, func(name string) g.Node {
		text, isNumber := strings.CutPrefix(name, "#")
		return h.Th(h.Scope("col"), g.If(isNumber, h.Class("number")), g.Text(text))
	})))
}

func rowHead(children ...g.Node) g.Node { return h.Th(h.Scope("row"), g.Group(children)) }

// numberCell is muted when it says nothing.
func numberCell(silent bool, text string) g.Node {
	class := "number"
	if silent {
		class += " muted"
	}
	return h.Td(h.Class(class), g.Text(text))
}

// entry of a list of names and values.
func entry(name string, value ...g.Node) g.Node { return h.Div(h.Dt(g.Text(name)), h.Dd(value...)) }

func more(children ...g.Node) g.Node { return h.P(h.Class("more"), g.Group(children)) }

func asJSON(href string) g.Node { return more(h.A(h.Href(href), g.Text("This page as JSON"))) }

func empty(text string) g.Node { return h.P(h.Class("empty"), g.Text(text)) }

// use shows a picture of the sprite.
func use(name string) g.Node {
	return h.SVG(h.Aria("hidden", "true"), g.Attr("focusable", "false"), g.El("use", h.Href("#i-"+name)))
}

func toned(tone, picture, text string) g.Node {
	return h.Span(h.Class("state "+tone), use(picture), g.Text(text))
}

func stateOf(s supervisor.State) g.Node { return toned(tone(s), strings.ToLower(string(s)), string(s)) }

func stateCounts(counts []stateCount) g.Node {
	return h.Ul(h.Class("counts"), h.Aria("label", "Controllers by state"), g.Map(counts, func(c stateCount) g.Node {
		return h.Li(stateOf(c.State), g.Text(" "), h.B(number(c.Count)))
	}))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func machine(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func ago(t time.Time) g.Node {
	if t.IsZero() {
		return muted("unknown")
	}
	return h.Time(h.DateTime(machine(t)), h.Title(stamp(t)), g.Text(span(time.Since(t))+" ago"))
}

func digestOf(digest string) g.Node {
	return h.Code(h.Title(digest), g.Text(digest[:min(len(digest), 12)]))
}

// yamlOf fails the page when value cannot be encoded.
func yamlOf(value any) g.Node {
	return g.NodeFunc(func(w io.Writer) error {
		text, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("show as YAML: %w", err)
		}
		return h.Pre(h.TabIndex("0"), g.Text(string(text))).Render(w)
	})
}

func workers(busy, running, wanted int) g.Node {
	if wanted == 0 {
		return muted("none")
	}
	rect := func(class string, width int) g.Node {
		return g.El("rect", h.Class(class), h.Width(strconv.Itoa(width)), h.Height("6"), g.Attr("rx", "3"))
	}
	text := g.Group{muted(fmt.Sprintf("0 of %d run", wanted))}
	if running > 0 {
		text = g.Group{h.B(number(busy)), g.Textf(" of %d busy", running)}
		if running != wanted {
			text = append(text, muted(fmt.Sprintf(", %d wanted", wanted)))
		}
	}
	return h.Span(h.Class("workers"),
		h.SVG(h.Aria("hidden", "true"), g.Attr("focusable", "false"), g.Attr("viewBox", fmt.Sprintf("0 0 %d 6", barWidth)),
			g.Attr("preserveAspectRatio", "none"), rect("track", barWidth), rect("fill", share(busy, running))),
		h.Span(text))
}

func controllerTable(all []supervisor.Status) g.Node {
	if len(all) == 0 {
		return empty("No controller runs.")
	}
	return scroll("Controllers",
		columns("Controller", "State", "Workers", "#Queue", "#Oldest key", "#Restarts"),
		g.Map(all, controllerRow))
}

func controllerRow(c supervisor.Status) g.Node {
	failure := lastError(c)
	noted := c.Reason != "" || failure != ""
	oldest := nothing
	if c.Work.Depth > 0 {
		oldest = span(c.Work.Oldest)
	}
	return h.TBody(g.If(noted, h.Class("noted")),
		h.Tr(
			rowHead(controllerLink(c.Name)),
			h.Td(stateOf(c.State), g.If(!c.Since.IsZero(), g.Group{g.Text(" "), h.Time(
				h.Class("muted"), h.DateTime(machine(c.Since)), h.Title(stamp(c.Since)), g.Text(span(time.Since(c.Since))))})),
			h.Td(workers(c.Work.Busy, c.Work.Running, c.Work.Wanted)),
			numberCell(c.Work.Depth == 0, strconv.Itoa(c.Work.Depth)),
			numberCell(c.Work.Depth == 0, oldest),
			numberCell(c.Restarts == 0, strconv.Itoa(c.Restarts)),
		),
		g.If(noted, h.Tr(h.Class("note"), h.Td(h.ColSpan("6"),
			g.If(c.Reason != "", h.Span(g.Text(c.Reason))),
			g.If(failure != "", h.Span(h.Class("error"), muted("Last error:"), g.Text(" "+failure))),
		))),
	)
}

func restingTable(resting []supervisor.Status, open bool) g.Node {
	if len(resting) == 0 {
		return nil
	}
	return h.Details(h.ID("resting"), g.If(open, g.Attr("open")),
		h.Summary(g.Text(plural(len(resting), "controller does", "controllers do")+" not run here")),
		scroll("Controllers that do not run here",
			columns("Controller", "State", "Why"),
			h.TBody(g.Map(resting, func(c supervisor.Status) g.Node {
				return h.Tr(rowHead(controllerLink(c.Name)), h.Td(stateOf(c.State)), h.Td(g.Text(c.Reason)))
			}))))
}

func errorList(errs []schema.Error) g.Node {
	return h.Ol(h.Class("errors"), g.Map(errs, func(e schema.Error) g.Node {
		return h.Li(h.Code(g.Text(e.Origin.String())), g.If(e.Path != "", g.Group{g.Text(" "), h.B(g.Text(e.Path))}), g.Text(" "+e.Message))
	}))
}

func reloadTable(reloads []Reload) g.Node {
	if len(reloads) == 0 {
		return empty("No reload yet.")
	}
	return scroll("Reloads",
		columns("When", "Result", "What it did", "Trigger", "File", "#Took"),
		h.TBody(g.Map(reloads, func(r Reload) g.Node {
			return h.Tr(
				h.Td(h.Class("when"), ago(r.At)),
				h.Td(toned(resultTone(r.Result), resultPicture(r.Result), string(r.Result))),
				h.Td(doneBy(r)),
				h.Td(g.Text(r.Trigger)),
				h.Td(digestOf(r.Digest)),
				numberCell(false, span(r.Took)),
			)
		})))
}

func doneBy(r Reload) g.Node {
	switch {
	case len(r.Errors) == 0 && len(r.Plan) == 0:
		return muted("nothing to do")
	case len(r.Plan) == 0:
		return errorList(r.Errors)
	}
	return g.Group{
		g.If(len(r.Errors) > 0, errorList(r.Errors)),
		h.Ul(h.Class("plan"), g.Map(r.Plan, func(s supervisor.Step) g.Node {
			return h.Li(h.B(g.Text(actionName(s.Action))), g.Text(" "), h.Span(h.Class("name"), or(s.Controller, s.Setting)),
				g.If(s.Reason != "", g.Group{g.Text(" "), muted(s.Reason)}))
		})),
	}
}

func informerTable(all []informers.Status) g.Node {
	if len(all) == 0 {
		return empty("No informer runs.")
	}
	return scroll("Informers",
		columns("Resource", "State", "#Objects", "#Resource version", "Used by"),
		h.TBody(g.Map(all, func(i informers.Status) g.Node {
			return h.Tr(
				rowHead(g.Text(i.Resource),
					g.If(i.Metadata, g.Group{g.Text(" "), muted("metadata only")}),
					g.If(i.Selection != "", g.Group{g.Text(" "), muted(i.Selection)})),
				h.Td(informerState(i)),
				numberCell(false, strconv.Itoa(i.Objects)),
				h.Td(h.Class("number"), or(i.ResourceVersion, nothing)),
				h.Td(g.Text(strings.Join(i.Users, ", "))),
			)
		})))
}

func informerState(i informers.Status) g.Node {
	switch {
	case i.LastError != "":
		return g.Group{toned(toneBad, "failed", "Failing"), h.Span(h.Class("error"), g.Text(i.LastError))}
	case i.Synced:
		return toned(toneGood, "running", "Synced")
	default:
		return toned(toneBusy, "starting", "Syncing")
	}
}

func leadership(d pageData) g.Node {
	e := d.Election
	holder := g.Text("nobody")
	switch {
	case e.Leader:
		holder = g.Group{g.Text("this process, since "), ago(e.AcquiredAt)}
	case e.Holder != "":
		holder = h.Span(h.Class("name"), g.Text(e.Holder))
	}
	transitions := strconv.Itoa(e.Transitions)
	if e.FencedRequests > 0 {
		transitions += ", " + plural(e.FencedRequests, "request", "requests") + " fenced"
	}
	return h.Dl(
		entry("This process", h.Class("name"), or(e.Identity, nothing)),
		entry("Lease", h.Class("name"), or(d.Lease, nothing)),
		entry("Holder", holder),
		entry("Renewed", ago(e.RenewedAt)),
		entry("Transitions", g.Text(transitions)),
	)
}

func configuration(d pageData) g.Node {
	file := g.Group{entry("File", g.Text("nothing loaded yet"))}
	if c := d.Config; c != nil {
		digest := g.Text(nothing)
		if c.Digest != "" {
			digest = digestOf(c.Digest)
		}
		file = g.Group{
			entry("File", h.Class("name"), or(c.Path, "none, defaults only")),
			entry("Digest", digest),
			entry("Loaded", ago(c.LoadedAt), g.If(c.Trigger != "", g.Group{g.Text(" "), muted("by " + c.Trigger)})),
		}
	}
	newer := g.Text("none")
	if d.Rejected != nil {
		newer = g.Group{g.Text("rejected "), ago(d.Rejected.At)}
	}
	restart := "nothing"
	if n := len(d.PendingRestart); n > 0 {
		restart = plural(n, "value", "values")
	}
	return h.Dl(file, entry("Newer file", newer), entry("Needs a restart", g.Text(restart)))
}

func configAlerts(d pageData) g.Node {
	var all g.Group
	if r := d.Rejected; r != nil {
		all = append(all, alert(toneBad, "rejected", true, "The newest file is rejected, the last good one runs on",
			h.P(g.Text("Seen "), ago(r.At), g.If(r.Digest != "", g.Group{g.Text(", digest "), digestOf(r.Digest)}),
				g.Text(". Nothing of it is applied.")),
			errorList(r.Errors)))
	}
	if n := len(d.PendingRestart); n > 0 {
		all = append(all, alert(toneWarn, "pending", true, plural(n, "value takes", "values take")+" effect at the next start",
			h.Ul(h.Class("errors"), g.Map(d.PendingRestart, func(p PendingRestart) g.Node {
				return h.Li(h.B(g.Text(p.Path)), g.Text(" runs as "), h.Code(g.Textf("%v", p.Running)),
					g.Text(", the file says "), h.Code(g.Textf("%v", p.Wanted)))
			}))))
	}
	return all
}

func alerts(d pageData) g.Node {
	var all g.Group
	if n := len(d.Failing); n > 0 {
		all = append(all, alert(toneBad, "failing", true, plural(n, "health check fails", "health checks fail"),
			h.Ul(h.Class("errors"), g.Map(d.Failing, func(c failingCheck) g.Node {
				return h.Li(h.B(g.Text(c.Name)), g.Text(" "+c.Reason))
			}))))
	}
	all = append(all, configAlerts(d))
	if err := d.Server.Certificate.LastError; err != "" {
		all = append(all, alert(toneWarn, "certificate", true, "The certificate files cannot be used", h.P(g.Text(err))))
	}
	if err := d.Server.ClientCA.LastError; err != "" {
		all = append(all, alert(toneWarn, "client-ca", true, "The client CA cannot be used", h.P(g.Text(err))))
	}
	return all
}
