package schema

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// program is what is looked for in a manifest.
const program = "kube-controller-manager"

// manifest is as much of a Pod, or of an object with a pod template, as is needed.
type manifest struct {
	Kind string  `yaml:"kind"`
	Spec podSpec `yaml:"spec"`
}

type podSpec struct {
	Containers []container `yaml:"containers"`
	Template   struct {
		Spec struct {
			Containers []container `yaml:"containers"`
		} `yaml:"spec"`
	} `yaml:"template"`
}

type container struct {
	Name    string   `yaml:"name"`
	Image   string   `yaml:"image"`
	Command []string `yaml:"command"`
	Args    []string `yaml:"args"`
	Env     []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`
}

// ConvertManifest makes a configuration from a static-pod manifest of
// kube-controller-manager, or from another object with a pod template. The first
// container that runs the program counts. See ConvertCommandLine.
func (s *Scheme) ConvertManifest(data []byte) (Conversion, error) {
	root, errs := parseYAML("manifest", data, "a Pod")
	if len(errs) > 0 {
		return Conversion{}, errs
	}
	if _, ok := root.value.([]entry); !ok {
		return Conversion{}, fmt.Errorf("read the manifest: expected a Pod, got %s", root.form())
	}
	var object manifest
	if err := yaml.Unmarshal(data, &object); err != nil {
		return Conversion{}, fmt.Errorf("read the manifest: its containers are not those of a Pod")
	}
	for _, c := range append(object.Spec.Containers, object.Spec.Template.Spec.Containers...) {
		if !c.isPeer() {
			continue
		}
		args, err := c.arguments()
		if err != nil {
			return Conversion{}, fmt.Errorf("container %s: %w", show(c.Name), err)
		}
		return s.ConvertCommandLine(args)
	}
	return Conversion{}, fmt.Errorf("read the manifest: no container of the %s runs %s", kindOr(object.Kind, "object"), program)
}

func kindOr(kind, otherwise string) string {
	if simpleKey.MatchString(kind) {
		return kind
	}
	return otherwise
}

func (c container) isPeer() bool {
	if c.Name == program || len(c.Command) > 0 && path.Base(c.Command[0]) == program {
		return true
	}
	image, _, _ := strings.Cut(path.Base(c.Image), ":")
	image, _, _ = strings.Cut(image, "@")
	return image == program || strings.HasPrefix(image, program+"-")
}

var (
	shell     = regexp.MustCompile(`^(ba|da|a)?sh$`)
	reference = regexp.MustCompile(`\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)`)
)

// arguments are command and args together, variables of the manifest replaced.
func (c container) arguments() ([]string, error) {
	args := append(append([]string{}, c.Command...), c.Args...)
	if len(args) > 0 && shell.MatchString(path.Base(args[0])) {
		return nil, fmt.Errorf("runs %s through a shell; convert the command line itself", program)
	}
	env := map[string]string{}
	for _, variable := range c.Env {
		env[variable.Name] = variable.Value
	}
	for i, arg := range args {
		// As the kubelet does: unknown references stay, $$ is one dollar.
		args[i] = reference.ReplaceAllStringFunc(arg, func(found string) string {
			if found == "$$" {
				return "$"
			}
			if value, ok := env[found[2:len(found)-1]]; ok && value != "" {
				return value
			}
			return found
		})
	}
	return args, nil
}
