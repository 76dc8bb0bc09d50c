package schema

import (
	"reflect"
	"strings"

	peer "k8s.io/kube-controller-manager/config/v1alpha1"
)

const (
	// PeerAPIVersion is of the configuration API of kube-controller-manager.
	PeerAPIVersion = "kubecontrollermanager.config.k8s.io/v1alpha1"
	// PeerKind is its kind.
	PeerKind = "KubeControllerManagerConfiguration"
)

// decodePeer reads a KubeControllerManagerConfiguration, as strictly as our own
// kind: names are those of that API, upper case included. Zero values mean what
// they mean there, mostly the default.
func (s *Scheme) decodePeer(root *tree) (Layer, Errors) {
	fields := shapeOf(reflect.TypeFor[peer.KubeControllerManagerConfiguration](), "")
	reader := &decoder{
		elsewhere: fields, nullIsAbsent: true,
		origins: map[string]Origin{}, elements: map[string]Origin{}, rejected: map[string]bool{},
	}
	values := reader.object(root, fields, "")

	c := newConversion(true)
	settings := peerSettings()
	for _, setting := range settings {
		at, ok := reader.origins[setting.field]
		if value, found := lookUp(values, setting.field); ok && found {
			c.given[setting.id()] = given{setting: setting, value: value, at: at}
		}
	}
	c.source, c.elements = root.at, reader.elements
	c.run(settings)

	layer, errs := s.checked(c.layer)
	for i, err := range errs {
		if origin, known := c.fields[err.Path]; known {
			errs[i].Path = origin
		}
	}
	return layer, append(append(reader.errs, c.errs...), errs...)
}

// checked decodes the values of a layer that was made by conversion.
func (s *Scheme) checked(layer Layer) (Layer, Errors) {
	d := s.decoder()
	values := d.object(treeOf(layer.Values, "", layer.Origins), s.root, "")
	return Layer{Values: values, Origins: d.origins, Warnings: layer.Warnings}, d.errs
}

func lookUp(values map[string]any, path string) (any, bool) {
	name, rest, deeper := strings.Cut(path, ".")
	value, ok := values[name]
	if !ok || !deeper {
		return value, ok
	}
	below, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	return lookUp(below, rest)
}
