package informers

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// requests of one resource.
type requests interface {
	list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	// example is an empty object of the type that list and watch give.
	example() runtime.Object
}

// client that makes the requests of k.
func (p *Pool) client(k key) any {
	if k.metadata {
		return p.o.Metadata
	}
	return p.o.Client
}

func (p *Pool) requests(k key) (requests, error) {
	if k.metadata {
		return metadataRequests{p.o.Metadata.Resource(k.gvr)}, nil
	}
	goType, ok := builtInType(k.gvr)
	if !ok {
		return nil, fmt.Errorf("informer of %s: not a resource that client-go has a type for; use a metadata informer", k)
	}
	client := p.o.Client.CoreV1().RESTClient()
	if restClient, ok := client.(*rest.RESTClient); client == nil || ok && restClient == nil {
		return nil, fmt.Errorf("informer of %s: the client has no REST client, as fake clientsets have not", k)
	}
	return typedRequests{client: client, path: resourcePath(k.gvr, k.selection.Namespace), fields: k.selection.FieldSelector, goType: goType}, nil
}

// builtInType is the Go type of a resource's objects. client-go's scheme knows
// kinds only; the resources of Kubernetes all have their kind's regular plural.
func builtInType(gvr schema.GroupVersionResource) (reflect.Type, bool) {
	for kind, goType := range scheme.Scheme.KnownTypes(gvr.GroupVersion()) {
		if plural, _ := meta.UnsafeGuessKindToResource(gvr.GroupVersion().WithKind(kind)); plural == gvr {
			return goType, true
		}
	}
	return nil, false
}

// resourcePath of a resource in a namespace, or in all.
func resourcePath(gvr schema.GroupVersionResource, namespace string) string {
	resource := gvr.Resource
	if namespace != "" {
		resource = "namespaces/" + namespace + "/" + resource
	}
	if gvr.Group == "" {
		return "/api/" + gvr.Version + "/" + resource
	}
	return "/apis/" + gvr.Group + "/" + gvr.Version + "/" + resource
}

// typedRequests are those that client-go's generated clients make. All clients
// of a clientset decode whatever client-go's scheme knows, so that one serves
// for all groups.
type typedRequests struct {
	client rest.Interface
	path   string
	// fields is a field selector.
	fields string
	goType reflect.Type
}

func (r typedRequests) get(options *metav1.ListOptions) *rest.Request {
	options.FieldSelector = r.fields
	return r.client.Get().
		UseProtobufAsDefault().
		AbsPath(r.path).
		VersionedParams(options, scheme.ParameterCodec)
}

func (r typedRequests) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return r.get(&options).Do(ctx).Get()
}

func (r typedRequests) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	options.Watch = true
	return r.get(&options).Watch(ctx)
}

func (r typedRequests) example() runtime.Object {
	return reflect.New(r.goType).Interface().(runtime.Object)
}

type metadataRequests struct {
	client metadata.Getter
}

func (r metadataRequests) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return r.client.List(ctx, options)
}

func (r metadataRequests) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return r.client.Watch(ctx, options)
}

func (r metadataRequests) example() runtime.Object { return &metav1.PartialObjectMetadata{} }
