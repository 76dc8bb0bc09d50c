package schema

import (
	"fmt"
	"strings"
)

// carryControllers turns the list of --controllers, and the switches beside it,
// into the enabled fields of sections.
//
// In the list the first item that names a controller decides; a controller that no
// item names is on when the list has a star and it is on by default.
func (c *conversion) carryControllers() {
	g, ok := c.given["--controllers"]
	items, _ := g.value.([]any)
	if !ok || c.fromFile && len(items) == 0 {
		g.setting = setting{flag: "controllers", field: "Generic.Controllers", kind: list}
		items = []any{"*"}
	}
	byName := map[string]SectionType{}
	names := []string{"*"}
	for _, section := range sections() {
		for _, name := range append([]string{section.Name}, section.Aliases...) {
			byName[name] = section
			names = append(names, name)
		}
	}
	byName["cloud-node-lifecycle"] = byName["cloud-node-lifecycle-controller"]

	star := false
	decided := map[string]bool{}
	for i, item := range items {
		text := strings.TrimSpace(fmt.Sprint(item))
		if text == "*" {
			star = true
			continue
		}
		name, off := strings.CutPrefix(text, "-")
		section, known := byName[name]
		if !known {
			one := g
			one.value = []any{item}
			if at, ok := c.elements[fmt.Sprintf("%s[%d]", g.setting.field, i)]; ok {
				one.at = at
			}
			c.refuseController(one, name, names)
			continue
		}
		if _, before := decided[section.Name]; !before {
			decided[section.Name] = !off
		}
	}
	cloud, external := c.cloud()
	for _, section := range sections() {
		byDefault := section.New().Base().Enabled
		if cloudControllers[section.Name] && cloud && !external {
			byDefault = true
		}
		wanted, named := decided[section.Name]
		if !named {
			wanted = star && byDefault
		}
		c.carryEnabled(g, section, wanted, named)
	}
}

// cloudControllers ran in kube-controller-manager 1.25 when it had a cloud provider.
var cloudControllers = map[string]bool{
	"service-lb-controller":           true,
	"node-route-controller":           true,
	"cloud-node-lifecycle-controller": true,
}

func (c *conversion) cloud() (given, external bool) {
	name, _ := c.given["--cloud-provider"].value.(string)
	return name != "", name == "external"
}

// carryEnabled applies the switches that the peer has beside its list.
func (c *conversion) carryEnabled(g given, section SectionType, wanted, named bool) {
	switch section.Name {
	case "serviceaccount-token-controller":
		if !wanted && named {
			c.remark(g, "kube-controller-manager runs %s whatever the list says, and so does this file; set its enabled: false "+
				"to turn it off", section.Name)
		}
		wanted = true
	case "garbage-collector-controller":
		if enabled, ok := c.given["--enable-garbage-collector"]; ok && enabled.value == false {
			g, wanted = enabled, false
		}
	case "node-route-controller":
		if routes, ok := c.given["--configure-cloud-routes"]; ok && routes.value == false {
			g, wanted = routes, false
		}
	}
	path := "controllers." + section.Name + ".enabled"
	if _, idle := c.layer.Origins[path]; idle {
		return // turned off for want of workers
	}
	if wanted != section.New().Base().Enabled {
		c.put(path, wanted, g.at)
	}
}

func (c *conversion) refuseController(g given, name string, names []string) {
	message := fmt.Sprintf("no controller is called %s%s", show(name), didYouMean(name, names))
	if c.fromFile {
		c.errs = append(c.errs, Error{Origin: g.at, Path: g.setting.field, Message: message})
		return
	}
	c.drop(g, message)
}
