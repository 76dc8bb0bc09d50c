package schema

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Note is a remark on one flag or field of kube-controller-manager.
type Note struct {
	// Flag with its dashes, or the path of a field without a flag.
	Flag string `json:"flag"`
	// Value as it was given; left out where it may be sensitive.
	Value string `json:"value,omitempty"`
	// Message says why the value is not carried over, or what differs, and what
	// to do about it.
	Message string `json:"message"`
}

func (n Note) String() string {
	if n.Value == "" {
		return n.Flag + ": " + n.Message
	}
	return n.Flag + "=" + n.Value + ": " + n.Message
}

// given is the value of a setting.
type given struct {
	setting setting
	value   any // string, bool, int64, float64 or []any; durations as strings
	at      Origin
}

// conversion turns settings of the peer into a layer.
type conversion struct {
	// fromFile tells a configuration file from a command line: in it, zero mostly
	// means the default.
	fromFile bool
	// source is the place of the file.
	source Origin
	// elements are the places of the entries of lists, by the path of the field.
	elements map[string]Origin
	// given settings, by their id.
	given map[string]given
	// fields of the peer by the paths here that they set; current is the one at hand.
	fields  map[string]string
	current string

	layer   Layer
	dropped []Note
	notes   []Note
	errs    Errors
}

func newConversion(fromFile bool) *conversion {
	return &conversion{
		fromFile: fromFile,
		given:    map[string]given{},
		fields:   map[string]string{},
		layer:    Layer{Values: map[string]any{}, Origins: map[string]Origin{}},
	}
}

// run carries all that is given, and what the peer does by default where that differs.
func (c *conversion) run(settings []setting) {
	for _, s := range settings {
		g, ok := c.given[s.id()]
		if !ok || c.fromFile && !s.zeroCounts && g.zero() {
			continue
		}
		c.current = s.field
		switch {
		case g.value == any(rejected{}):
			for _, path := range s.to {
				c.put(path, g.value, g.at)
			}
		case s.carry != nil:
			s.carry(c, g)
		case len(s.to) > 0:
			for _, path := range s.to {
				c.put(path, g.value, g.at)
			}
		case !g.isDefault():
			c.drop(g, s.why)
		}
	}
	c.current = ""
	c.carryControllers()
	c.carryCredentials()
	c.noteLimits()
}

// zero tells whether the peer would put its default in place of the value.
func (g given) zero() bool {
	switch v := g.value.(type) {
	case string:
		return v == "" || g.setting.kind == period && v == "0s"
	case int64:
		return v == 0
	case float64:
		return v == 0
	case []any:
		return len(v) == 0
	}
	return false
}

func (g given) isDefault() bool {
	if g.setting.kind == period {
		a, errA := time.ParseDuration(g.text())
		b, errB := time.ParseDuration(g.setting.def)
		return errA == nil && errB == nil && a == b
	}
	return g.text() == g.setting.def
}

// text is the value as a flag spells it.
func (g given) text() string {
	if items, ok := g.value.([]any); ok {
		parts := make([]string, len(items))
		for i, item := range items {
			parts[i] = fmt.Sprint(item)
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(g.value)
}

func (c *conversion) put(path string, value any, at Origin) {
	names := strings.Split(path, ".")
	values := c.layer.Values
	for _, name := range names[:len(names)-1] {
		below, ok := values[name].(map[string]any)
		if !ok {
			below = map[string]any{}
			values[name] = below
		}
		values = below
	}
	values[names[len(names)-1]] = value
	c.layer.Origins[path] = at
	if c.current != "" {
		c.fields[path] = c.current
	}
}

func (c *conversion) note(g given) Note {
	value := g.text()
	if strings.HasPrefix(show(value), "a string of") {
		value = "" // too long or not plain text
	}
	return Note{Flag: g.setting.id(), Value: value}
}

// drop says that a value is not carried over.
func (c *conversion) drop(g given, why string) {
	if c.fromFile && g.setting.refuse {
		c.errs = append(c.errs, Error{Origin: g.at, Path: g.setting.field, Message: "is not supported: " + why})
		return
	}
	if c.fromFile && why == noEffect {
		return
	}
	c.warn(g, "is not carried over: "+why)
	note := c.note(g)
	note.Message = why
	c.dropped = append(c.dropped, note)
}

// remark says what differs about a value that is carried over.
func (c *conversion) remark(g given, format string, args ...any) {
	note := c.note(g)
	note.Message = fmt.Sprintf(format, args...)
	c.notes = append(c.notes, note)
	c.warn(g, note.Message)
}

func (c *conversion) warn(g given, message string) {
	if c.fromFile {
		c.layer.Warnings = append(c.layer.Warnings, Error{Origin: g.at, Path: g.setting.field, Message: message})
	}
}

// carryNonEmpty carries a string whose empty value means the default.
func carryNonEmpty(to string) func(*conversion, given) {
	return func(c *conversion, g given) {
		if g.value != "" {
			c.put(to, g.value, g.at)
		}
	}
}

func carryWorkers(controller string) func(*conversion, given) {
	return func(c *conversion, g given) {
		if n, ok := g.value.(int64); ok && n < 1 && !c.fromFile {
			c.put("controllers."+controller+".enabled", false, g.at)
			c.remark(g, "kube-controller-manager starts no worker then, so that %s is turned off", controller)
			return
		}
		c.put("controllers."+controller+".workers", g.value, g.at)
	}
}

func carrySeconds(to string) func(*conversion, given) {
	return func(c *conversion, g given) {
		n, ok := g.value.(int64)
		if !ok || n > int64(24*365*time.Hour/time.Second) || n < -1 {
			c.put(to, fmt.Sprint(g.value), g.at) // out of every range: reported with its place
			return
		}
		c.put(to, (time.Duration(n) * time.Second).String(), g.at)
	}
}

func carryRanges(to string) func(*conversion, given) {
	return func(c *conversion, g given) { c.put(to, splitList(g.text()), g.at) }
}

// carryServiceRanges joins the two fields of a file; the flag holds both ranges.
func carryServiceRanges(c *conversion, g given) {
	ranges := splitList(g.text())
	if g.setting.flag != "" {
		if second, ok := c.given["NodeIPAMController.SecondaryServiceCIDR"]; ok {
			ranges = append(ranges, splitList(second.text())...)
		}
	}
	if _, first := c.given["--service-cluster-ip-range"]; first && g.setting.flag == "" && len(c.rangesSoFar()) > 0 {
		return // the first field has brought both
	}
	c.put("cluster.serviceCIDRs", ranges, g.at)
}

func (c *conversion) rangesSoFar() []any {
	cluster, _ := c.layer.Values["cluster"].(map[string]any)
	ranges, _ := cluster["serviceCIDRs"].([]any)
	return ranges
}

func splitList(s string) []any {
	items := []any{}
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

const (
	// peerQPS and peerBurst are the limits of each client of the peer by default,
	// clientQPS and clientBurst those of client-go when 0 is given.
	peerQPS, peerBurst     = 20, 30
	clientQPS, clientBurst = 5, 10
)

func carryQPS(c *conversion, g given) {
	qps, ok := number64(g.value)
	switch {
	case !ok:
	case qps < 0:
		c.put("cluster.client.qps", int64(0), g.at)
		return
	case qps == 0:
		c.remark(g, "0 means client-go's default of %d there, and no limit here; carried as %d", clientQPS, clientQPS)
		qps = clientQPS
	}
	c.put("cluster.client.qps", qps, g.at)
	if _, given := c.given["--kube-api-burst"]; !given || c.fromFile && c.given["--kube-api-burst"].zero() {
		c.put("cluster.client.burst", int64(peerBurst), g.at)
	}
}

func carryBurst(c *conversion, g given) {
	burst, ok := g.value.(int64)
	qps, limited := c.given["--kube-api-qps"]
	rate, _ := number64(qps.value)
	switch {
	case !limited || c.fromFile && qps.zero():
		c.put("cluster.client.qps", int64(peerQPS), g.at)
	case rate < 0:
		return // no limit, no burst
	case ok && burst == 0 && rate == 0:
		burst = clientBurst
	}
	c.put("cluster.client.burst", burst, g.at)
}

func number64(value any) (float64, bool) {
	switch v := value.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	}
	return 0, false
}

// noteLimits says that the peer's default limit is not carried over.
func (c *conversion) noteLimits() {
	_, qps := c.given["--kube-api-qps"]
	_, burst := c.given["--kube-api-burst"]
	if !qps && !burst && !c.fromFile {
		c.notes = append(c.notes, Note{Flag: "--kube-api-qps", Message: fmt.Sprintf("not given: kube-controller-manager limits each "+
			"client to %d requests a second with bursts of %d then; here API Priority and Fairness sets the pace, unless "+
			"cluster.client.qps and burst are set", peerQPS, peerBurst)})
	}
}

// carryCredentials keeps the peer's default, which is the other one than ours.
func (c *conversion) carryCredentials() {
	const id, path = "--use-service-account-credentials", "cluster.useServiceAccountCredentials"
	if _, given := c.given[id]; given {
		return
	}
	at := Origin{Layer: "flag", Source: id + " not given"}
	message := "not given, which means false there: all controllers act with the identity of the daemon; " +
		"set " + path + ": true to give each its own, as the roles that the API server bootstraps expect"
	if c.fromFile {
		at = c.source
		c.layer.Warnings = append(c.layer.Warnings, Error{Origin: at, Path: "KubeCloudShared.UseServiceAccountCredentials", Message: message})
	}
	c.put(path, false, at)
	c.notes = append(c.notes, Note{Flag: id, Message: message})
}

func carryShutdown(c *conversion, g given) {
	wait, err := time.ParseDuration(g.text())
	if err == nil && wait == 0 {
		c.drop(g, "controllers are not waited for without end; set reload.drainTimeout")
		return
	}
	c.put("reload.drainTimeout", g.value, g.at)
	c.remark(g, "reload.drainTimeout bounds how long a stopping controller may finish, at exit and at a reload")
}

func carryVerbosity(c *conversion, g given) {
	const highest = 10
	if n, ok := g.value.(int64); ok && n > highest {
		c.put("logging.level", int64(highest), g.at)
		c.remark(g, "carried as %d, the highest level", highest)
		return
	}
	c.put("logging.level", g.value, g.at)
}

func carryQuotaPeriod(c *conversion, g given) {
	if wait, err := time.ParseDuration(g.text()); err == nil && wait < 0 {
		c.put("controllers.resourcequota-controller.syncPeriod", "0s", g.at)
		return
	}
	c.put("controllers.resourcequota-controller.syncPeriod", g.value, g.at)
}

func carryPodThreshold(c *conversion, g given) {
	value := g.value
	if n, ok := value.(int64); ok && n < 0 {
		value = int64(0)
	}
	c.put("controllers.pod-garbage-collector-controller.terminatedPodThreshold", value, g.at)
}

func carryIgnoredResources(c *conversion, g given) {
	items, _ := g.value.([]any)
	resources := make([]any, 0, len(items))
	for _, item := range items {
		fields, _ := item.(map[string]any)
		group, _ := fields["Group"].(string)
		resources = append(resources, map[string]any{"group": group, "resource": fields["Resource"]})
	}
	c.put("controllers.garbage-collector-controller.ignoredResources", resources, g.at)
}

// carrySigningPair leaves out one file without the other: the peer then starts no signer.
func carrySigningPair(c *conversion, g given) {
	const section = "controllers.certificatesigningrequest-signing-controller."
	other, to := "--cluster-signing-key-file", "certFile"
	if g.setting.flag == "cluster-signing-key-file" {
		other, to = "--cluster-signing-cert-file", "keyFile"
	}
	if g.value == "" {
		return
	}
	if pair, ok := c.given[other]; !ok || pair.value == "" {
		c.drop(g, "kube-controller-manager signs nothing when "+other+" is missing; give both")
		return
	}
	c.put(section+to, g.value, g.at)
}

func carryCertDir(c *conversion, g given) {
	if _, files := c.given["--tls-cert-file"]; files || g.value == "" {
		return
	}
	c.drop(g, "a self-signed certificate is only kept in memory; set server.tls.certFile and keyFile to serve one from a file")
}

func carryTLSVersion(c *conversion, g given) {
	switch g.value {
	case "":
	case "VersionTLS10", "VersionTLS11":
		c.drop(g, "TLS 1.2 is the least that is offered")
	default:
		c.put("server.tls.minVersion", g.value, g.at)
	}
}

func carryCipherSuites(c *conversion, g given) {
	items, _ := g.value.([]any)
	kept := []any{}
	for _, item := range items {
		one := g
		one.value = []any{item}
		if problem := checkCipherSuite(fmt.Sprint(item)); problem != "" {
			c.drop(one, problem)
		} else if !slices.Contains(kept, item) {
			kept = append(kept, item)
		}
	}
	if len(kept) > 0 {
		c.put("server.tls.cipherSuites", kept, g.at)
	}
}

// carryDelegated is for the kubeconfigs of authentication and authorization.
func carryDelegated(c *conversion, g given) {
	if g.value == "" || g.value == c.given["--kubeconfig"].value {
		return
	}
	c.drop(g, "tokens and permissions of callers are checked with cluster.kubeconfig")
}

func carryFeatureGates(c *conversion, g given) {
	items, _ := g.value.([]any)
	names := []string{}
	for _, gate := range gates {
		names = append(names, gate.Name)
	}
	for _, item := range items {
		one := g
		one.value = []any{item}
		name, value, ok := strings.Cut(strings.TrimPrefix(fmt.Sprint(item), "kube:"), "=")
		name, value = strings.TrimSpace(name), strings.ToLower(strings.TrimSpace(value))
		gate, exists := findGate(name)
		switch {
		case !ok || value != "true" && value != "false":
			c.drop(one, "expected NAME=true or NAME=false")
		case !exists:
			c.drop(one, "no controller and no part of the engine reads this gate"+didYouMean(name, names))
		case gate.Locked && gate.Default != (value == "true"):
			c.drop(one, fmt.Sprintf("the gate is locked to %t", gate.Default))
		default:
			c.put("featureGates."+name, value == "true", g.at)
		}
	}
}
