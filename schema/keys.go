package schema

// engineModules are the parts of the engine whose log level can be set.
var engineModules = [...]string{"client", "client-go", "config", "discovery", "election", "events", "informers", "manager", "server", "supervisor"}

// keySets returns what the keys of mappings may be, by the name in their check tag.
func (s *Scheme) keySets() map[string]keySet {
	features := keySet{noun: "feature gate", names: map[string]string{}}
	for _, gate := range gates {
		features.names[gate.Name] = gate.Name
	}
	modules := keySet{noun: "module", names: map[string]string{}}
	for _, name := range engineModules {
		modules.names[name] = name
	}
	for name, section := range s.byName {
		modules.names[name] = section.Name
	}
	return map[string]keySet{"featureGate": features, "module": modules}
}
