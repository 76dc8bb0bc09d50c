package schema

import "fmt"

// Origin says where a value comes from.
type Origin struct {
	// Layer is default, file, env or set; flag in a conversion.
	Layer string `json:"layer"`
	// Source is the file's path, the environment variable's name, or --set
	// with the path it sets.
	Source string `json:"source,omitempty"`
	// Line and Column start at 1; 0 outside files.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

func (o Origin) String() string {
	switch {
	case o.Line > 0:
		return fmt.Sprintf("%s:%d:%d", o.Source, o.Line, o.Column)
	case o.Source != "":
		return o.Source
	default:
		return o.Layer
	}
}

// Error is one fault of a configuration.
type Error struct {
	// Origin is where the faulty value was given.
	Origin Origin `json:"origin"`
	// Path of the value, such as controllers.deployment-controller.workers;
	// empty when the document as a whole is at fault.
	Path string `json:"path,omitempty"`
	// Message says what is wrong, with the value, and what was expected.
	Message string `json:"message"`
}

func (e Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("%s: %s", e.Origin, e.Message)
	}
	return fmt.Sprintf("%s: %s: %s", e.Origin, e.Path, e.Message)
}

// Errors are all faults of a configuration, in the order of the file.
type Errors []Error

func (e Errors) Error() string {
	s := ""
	for i, err := range e {
		if i > 0 {
			s += "\n"
		}
		s += err.Error()
	}
	return s
}
