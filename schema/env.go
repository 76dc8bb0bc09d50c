package schema

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// envPrefix starts the name of every environment variable that is read.
const envPrefix = "WHEELHOUSE_"

// serviceLink matches what the kubelet puts into a pod's environment for each
// Service of the namespace, here those whose names start with wheelhouse.
var serviceLink = regexp.MustCompile(`^WHEELHOUSE_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|` +
	`PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// serviceAddress is the value of such a variable that could be taken for a setting.
var serviceAddress = regexp.MustCompile(`^(tcp|udp|sctp)://`)

// environment maps every path and mapping, normalised, to its dotted path. It panics when
// two of them would have the same variable.
func (s *Scheme) environment() map[string]string {
	paths := map[string]string{}
	add := func(spelled, path string) {
		name := normalise(spelled)
		if other, taken := paths[name]; taken && other != path {
			panic(fmt.Sprintf("schema: %s and %s would have the same environment variable", other, path)) //nolint:forbidigo // a programmer's error
		}
		paths[name] = path
	}
	var walk func(s *shape, spelled, path string)
	walk = func(s *shape, spelled, path string) {
		for _, f := range s.fields {
			for _, name := range append([]string{f.name}, f.aliases...) {
				if f.shape.kind == object {
					walk(f.shape, join(spelled, name), join(path, f.name))
				} else {
					add(join(spelled, name), join(path, f.name))
				}
			}
		}
	}
	walk(s.root, "", "")
	for mapping, set := range map[string]keySet{"featureGates": s.keySets()["featureGate"], "logging.modules": s.keySets()["module"]} {
		for key, canonical := range set.names {
			add(join(mapping, key), join(mapping, canonical))
		}
	}
	return paths
}

var separators = strings.NewReplacer("_", "", "-", "", ".", "")

func normalise(name string) string { return strings.ToLower(separators.Replace(name)) }

// DecodeEnv reads the variables that start with WHEELHOUSE_. The rest of a name is
// a path in which case, dots, dashes and underscores do not matter, such as
// WHEELHOUSE_CONTROLLERS_DEPLOYMENT_CONTROLLER_WORKERS=7. Values are YAML scalars;
// lists are YAML or separated by commas, mappings YAML. The variables of Kubernetes
// service links are left alone, any other one is an error.
func (s *Scheme) DecodeEnv(environ []string) (Layer, Errors) {
	layer := Layer{Values: map[string]any{}, Origins: map[string]Origin{}}
	var errs Errors
	given := map[string]string{}
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(variable, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		if !ours {
			continue
		}
		at := Origin{Layer: "env", Source: name}
		path, known := s.env[normalise(rest)]
		if serviceLink.MatchString(name) && (!known || serviceAddress.MatchString(value)) {
			continue
		}
		if !known {
			errs = append(errs, Error{Origin: at, Message: "names no setting" + s.variableHint(rest)})
			continue
		}
		if first, twice := given[path]; twice {
			errs = append(errs, Error{Origin: at, Path: path, Message: fmt.Sprintf("given by %s too; unset one", first)})
			continue
		}
		given[path] = name
		errs = append(errs, s.decodeValue(&layer, at, path, value)...)
	}
	return layer, errs
}

// variableHint suggests the variable that was likely meant.
func (s *Scheme) variableHint(rest string) string {
	normal := normalise(rest)
	names := make([]string, 0, len(s.env))
	for name := range s.env {
		names = append(names, name)
	}
	slices.Sort(names)
	best, ok := nearest(normal, names)
	if !ok {
		return "; expected a path of the configuration, such as " + envPrefix + "SERVER_PORT"
	}
	return fmt.Sprintf("; did you mean %s?", Variable(s.env[best]))
}

var (
	words  = regexp.MustCompile(`([a-z0-9])([A-Z])`)
	breaks = strings.NewReplacer(".", "_", "-", "_")
)

// Variable returns the usual spelling of the environment variable that sets a path.
func Variable(path string) string {
	return envPrefix + strings.ToUpper(breaks.Replace(words.ReplaceAllString(path, "${1}_${2}")))
}
