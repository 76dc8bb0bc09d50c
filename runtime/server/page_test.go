package server

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/wheelhouse-project/wheelhouse/runtime/config"
	"github.com/wheelhouse-project/wheelhouse/runtime/election"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/supervisor"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var allPages = []string{
	"/", "/configz", "/configz/status", "/debug/controllers", "/debug/controllers/deployment-controller",
	"/debug/controllers/ttl-after-finished-controller", "/debug/reloads", "/debug/leader", "/debug/informers",
}

// The policy lets a browser run the page's own style and script, and nothing else.
func TestPages_KeepTheirOwnPolicy(t *testing.T) {
	h := handler(t, sample())
	inline := map[string]*regexp.Regexp{
		"style-src":  regexp.MustCompile(`(?s)<style>(.*?)</style>`),
		"script-src": regexp.MustCompile(`(?s)<script>(.*?)</script>`),
	}
	for _, target := range allPages {
		answer := ask(h, http.MethodGet, target, "Accept", browser)
		policy, body := answer.Header().Get("Content-Security-Policy"), answer.Body.String()
		for directive, pattern := range inline {
			found := pattern.FindAllStringSubmatch(body, -1)
			if len(found) != 1 {
				t.Fatalf("%s: %d inline elements for %s", target, len(found), directive)
			}
			if want := directive + " '" + hashOf(found[0][1]) + "'"; !strings.Contains(policy, want) {
				t.Errorf("%s: policy does not have %s: %s", target, want, policy)
			}
		}
		walk(t, body, func(n *html.Node) {
			for _, a := range n.Attr {
				if a.Key == "style" || strings.HasPrefix(a.Key, "on") {
					t.Errorf("%s: <%s> has attribute %s, which the policy forbids", target, n.Data, a.Key)
				}
				if (a.Key == "src" || a.Key == "href") && strings.Contains(a.Val, "//") && !strings.HasPrefix(a.Val, "data:") {
					t.Errorf("%s: <%s> leads elsewhere: %s", target, n.Data, a.Val)
				}
			}
		})
	}
}

// Everybody can read the pages: landmarks, headings, headers of tables, text beside colour.
func TestPages_AreAccessible(t *testing.T) {
	h := handler(t, sample())
	for _, target := range allPages {
		body := ask(h, http.MethodGet, target, "Accept", browser).Body.String()
		count := map[string]int{}
		ids := map[string]bool{}
		var labels []string
		walk(t, body, func(n *html.Node) {
			count[n.Data]++
			switch {
			case n.Data == "html" && attr(n, "lang") == "":
				t.Errorf("%s: no language", target)
			case n.Data == "th" && attr(n, "scope") == "":
				t.Errorf("%s: header cell without scope", target)
			case n.Data == "svg" && attr(n, "aria-hidden") != "true":
				t.Errorf("%s: picture without a text", target)
			case n.Data == "section" && attr(n, "aria-label") == "" && attr(n, "aria-labelledby") == "":
				t.Errorf("%s: section without a name", target)
			}
			if id := attr(n, "id"); id != "" {
				if ids[id] {
					t.Errorf("%s: id %s twice", target, id)
				}
				ids[id] = true
			}
			if by := attr(n, "aria-labelledby"); by != "" {
				labels = append(labels, by)
			}
		})
		for _, element := range []string{"main", "h1", "header", "nav", "title"} {
			if count[element] != 1 {
				t.Errorf("%s: %d of <%s>", target, count[element], element)
			}
		}
		for _, id := range labels {
			if !ids[id] {
				t.Errorf("%s: label %s is not there", target, id)
			}
		}
		mustContain(t, body, `<noscript><meta http-equiv="refresh"`)
	}
}

func TestPages_EscapeEverything(t *testing.T) {
	const evil = `<script>alert(1)</script>"'&`
	cfg := schema.NewScheme().Default()
	cfg.Cluster.Name = evil
	cfg.LeaderElection.ResourceName = evil
	h := handler(t, Sources{
		Config: func() ConfigStatus {
			return ConfigStatus{
				Running: &config.Snapshot{
					Config: cfg, Path: evil, Digest: evil, Trigger: evil,
					Origins: map[string]schema.Origin{evil: {Layer: "set", Source: evil}},
				},
				PendingRestart: []PendingRestart{{Path: evil, Running: evil, Wanted: evil}},
				Rejected: &config.Rejection{Digest: evil, Errors: schema.Errors{{
					Origin: schema.Origin{Source: evil}, Path: evil, Message: evil,
				}}},
			}
		},
		Controllers: func() []supervisor.Status {
			return []supervisor.Status{
				{Name: "deployment-controller", State: evil, Reason: evil, LastError: evil, Informers: []string{evil}},
				{Name: evil, State: supervisor.Disabled, Reason: evil},
				{Name: "ttl-after-finished-controller", State: supervisor.Failed, Reason: evil},
			}
		},
		Reloads: func() []Reload {
			return []Reload{{
				Trigger: evil, Digest: evil, Result: evil, Plan: []supervisor.Step{{Controller: evil, Action: evil, Reason: evil}},
				Errors: []schema.Error{{Message: evil}},
			}}
		},
		Election: func() election.Status { return election.Status{Identity: evil, Holder: evil} },
		Informers: func() []informers.Status {
			return []informers.Status{{Resource: evil, Users: []string{evil}, LastError: evil}}
		},
	})
	for _, target := range allPages {
		answer := ask(h, http.MethodGet, target, "Accept", browser)
		if answer.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", target, answer.Code, answer.Body)
		}
		scripts := 0
		walk(t, answer.Body.String(), func(n *html.Node) {
			if n.Data == "script" {
				scripts++
			}
		})
		if scripts != 1 || strings.Contains(answer.Body.String(), "<script>alert") {
			t.Errorf("%s: %d scripts", target, scripts)
		}
	}
}

func TestOverview_SaysWhatMatters(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Sources)
		parts  []string
	}{
		{
			"problem", func(*Sources) {},
			[]string{"<title>(1) Status", "Leading", "1 problem", "1 health check fails", "starts again in 10 s", "panic: assignment"},
		},
		{
			"all well", func(s *Sources) { s.Checks = nil; s.Controllers = nil },
			[]string{"<title>Status", "All health checks pass", "No controller runs."},
		},
		{
			"standby", func(s *Sources) {
				s.Election = func() election.Status { return election.Status{Identity: "b", Holder: "cp-1_other"} }
			},
			[]string{"Standing by", "cp-1_other"},
		},
		{
			"many reloads", func(s *Sources) {
				s.Reloads = func() []Reload { return make([]Reload, overviewReloads+3) }
			},
			[]string{"3 earlier reloads"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			sources := sample()
			test.change(&sources)
			mustContain(t, ask(handler(t, sources), http.MethodGet, "/").Body.String(), test.parts...)
		})
	}
}

func TestOverview_ProblemsComeFirst(t *testing.T) {
	h := handler(t, Sources{Controllers: func() []supervisor.Status {
		return []supervisor.Status{
			{Name: "a-disabled", State: supervisor.Disabled},
			{Name: "b-running", State: supervisor.Running},
			{Name: "c-failed", State: supervisor.Failed},
			{Name: "d-stuck", State: supervisor.Stuck},
			{Name: "e-running", State: supervisor.Running},
			{Name: "f-standby", State: supervisor.Standby},
		}
	}})
	body := ask(h, http.MethodGet, "/").Body.String()
	last := -1
	for _, name := range []string{"d-stuck", "c-failed", "b-running", "e-running", "f-standby", "a-disabled"} {
		at := strings.Index(body, ">"+name+"<")
		if at <= last {
			t.Errorf("%s is at %d, after %d was expected", name, at, last)
		}
		last = at
	}
	mustContain(t, body, "1 controller does not run here")
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:            "0 s",
		0:                       "0 ms",
		41 * time.Millisecond:   "41 ms",
		1400 * time.Millisecond: "1.4 s",
		2 * time.Second:         "2 s",
		59 * time.Second:        "59 s",
		119 * time.Second:       "119 s",
		14 * time.Minute:        "14 min",
		29 * time.Hour:          "29 h",
		364 * 24 * time.Hour:    "364 d",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
}

func walk(t *testing.T, body string, visit func(*html.Node)) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			visit(n)
		}
	}
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}
