package servicefixture

import (
	"errors"

	config "github.com/wheelhouse-project/wheelhouse/schema"
)

// Refused returns what is wrong with FIELD=VALUE of a controller's section; nil
// when it is accepted.
func Refused(controller, setting string) error {
	scheme := config.NewScheme()
	layer, faults := scheme.DecodeSet("controllers." + controller + "." + setting)
	if len(faults) == 0 {
		_, faults = scheme.Build(layer.Values, layer.Origins)
	}
	var all []error
	for _, fault := range faults {
		all = append(all, fault)
	}
	return errors.Join(all...)
}
