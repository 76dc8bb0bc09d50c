package schema

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/spf13/pflag"
)

// flagValue records how a flag was given; what it means is found out later, so
// that parsing goes on after a bad value.
type flagValue struct {
	values []string
	bool   bool
}

func (v *flagValue) String() string { return strings.Join(v.values, ",") }
func (v *flagValue) Type() string   { return "string" }
func (v *flagValue) Set(s string) error {
	v.values = append(v.values, s)
	return nil
}

// commandLine is a parsed command line of kube-controller-manager.
type commandLine struct {
	flags   map[string]*flagValue
	unknown []string // in order, of no version
}

// parseFlags reads the arguments as kube-controller-manager would, underscores in
// flag names being dashes. Flags that it does not know are collected.
func parseFlags(args []string) (commandLine, error) {
	args = withoutProgram(args)
	line := commandLine{}
	for {
		parsed := map[string]*flagValue{}
		set := newFlagSet(parsed, line.unknown)
		err := set.Parse(args)
		var unknown *pflag.NotExistError
		var missing *pflag.ValueRequiredError
		switch {
		case errors.As(err, &unknown):
			name := unknown.GetSpecifiedName()
			if unknown.GetSpecifiedShortnames() != "" {
				return line, fmt.Errorf("the flag %s is not one of kube-controller-manager", show("-"+name))
			}
			line.unknown = append(line.unknown, normaliseFlag(name))
			continue
		case errors.As(err, &missing):
			return line, fmt.Errorf("the flag --%s lacks its value", missing.GetSpecifiedName())
		case err != nil:
			return line, fmt.Errorf("read the command line: %w", err)
		case set.NArg() > 0:
			return line, fmt.Errorf("the argument %s is not a flag; kube-controller-manager takes only flags", show(set.Arg(0)))
		}
		line.flags = parsed
		return line, nil
	}
}

func newFlagSet(parsed map[string]*flagValue, unknown []string) *pflag.FlagSet {
	set := pflag.NewFlagSet("kube-controller-manager", pflag.ContinueOnError)
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(normaliseFlag(name))
	})
	set.Usage = func() {}
	define := func(name string, boolean bool) {
		value := &flagValue{bool: boolean}
		parsed[name] = value
		flag := set.VarPF(value, name, shorthands[name], "")
		if boolean {
			flag.NoOptDefVal = "true"
		}
	}
	for _, setting := range peerSettings() {
		if setting.flag != "" {
			define(setting.flag, setting.kind == boolean)
		}
	}
	for _, removed := range removedFlags() {
		define(removed.flag, removed.boolean)
	}
	for _, name := range unknown {
		define(name, true)
	}
	return set
}

var shorthands = map[string]string{"v": "v", "help": "h"}

func normaliseFlag(name string) string { return strings.ReplaceAll(name, "_", "-") }

// withoutProgram drops the program in front of the flags, with hyperkube before it.
func withoutProgram(args []string) []string {
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		switch path.Base(args[0]) {
		case "kube-controller-manager", "controller-manager", "hyperkube":
			args = args[1:]
		default:
			return args
		}
	}
	return args
}

// value reads what was given for a setting. The last one counts, but lists add up.
func (v *flagValue) value(s setting) (any, error) {
	last := v.values[len(v.values)-1]
	at := Origin{Layer: "flag", Source: s.id()}
	if s.kind == list {
		items := []any{}
		for _, one := range v.values {
			items = append(items, splitList(strings.Trim(one, "[]"))...)
		}
		return items, nil
	}
	if s.kind == text {
		return last, nil
	}
	parsed, err := parseValue(last, &shape{kind: s.kind}, at)
	if err != nil {
		return nil, err
	}
	d := decoder{origins: map[string]Origin{}}
	value := d.decode(parsed, &shape{kind: s.kind}, "")
	if len(d.errs) > 0 {
		return nil, errors.New(d.errs[0].Message)
	}
	return value, nil
}
