package client

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

// encode encodes object as the API server does in its answers.
func encode(t testing.TB, contentType string, object runtime.Object) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(serializer.NewCodecFactory(scheme.Scheme).SupportedMediaTypes(), contentType)
	if !ok {
		t.Fatalf("no serializer for %s", contentType)
	}
	var body bytes.Buffer
	if err := info.Serializer.Encode(object, &body); err != nil {
		t.Fatalf("encode a %T: %v", object, err)
	}
	return body.Bytes()
}

func TestResourceVersionOfEveryType(t *testing.T) {
	tested := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		object, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		accessor, ok := object.(metav1.ObjectMetaAccessor)
		if !ok {
			continue // a list or an options object
		}
		object.GetObjectKind().SetGroupVersionKind(gvk)
		metadata := accessor.GetObjectMeta()
		metadata.SetName("name")
		metadata.SetGenerateName("name-")
		metadata.SetNamespace("namespace")
		metadata.SetUID("00000000-0000-0000-0000-000000000000")
		metadata.SetLabels(map[string]string{"resourceVersion": "1"})
		for _, version := range []string{"", "123456789"} {
			metadata.SetResourceVersion(version)
			for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
				if got := resourceVersionOf(contentType, encode(t, contentType, object)); got != version {
					t.Errorf("%s as %s: got %q, want %q", gvk, contentType, got, version)
				}
			}
		}
		tested++
	}
	if tested < 100 {
		t.Errorf("only %d types were tested", tested)
	}
}

func TestAnswersWithoutAResourceVersion(t *testing.T) {
	status := &metav1.Status{Status: metav1.StatusSuccess, ListMeta: metav1.ListMeta{ResourceVersion: "5"}}
	status.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("Status"))
	// The answer of a DELETE of a collection, whose version is that of the list before it.
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: []corev1.Pod{{}}}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	for _, object := range []runtime.Object{status, list} {
		for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
			if got := resourceVersionOf(contentType, encode(t, contentType, object)); got != "" {
				t.Errorf("%T as %s: got %q, want none", object, contentType, got)
			}
		}
	}
}

func TestResourceVersionOfMetadata(t *testing.T) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "77"}}
	object.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	accept := runtime.ContentTypeProtobuf + ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	if got := resourceVersionOf(accept, encode(t, runtime.ContentTypeProtobuf, object)); got != "77" {
		t.Errorf("got %q, want 77", got)
	}
}

func FuzzResourceVersionOf(f *testing.F) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7"}}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	f.Add(encode(f, runtime.ContentTypeProtobuf, pod))
	f.Add(encode(f, runtime.ContentTypeJSON, pod))
	decoder := scheme.Codecs.UniversalDeserializer()
	f.Fuzz(func(t *testing.T, body []byte) {
		resourceVersionOf(runtime.ContentTypeJSON, body)
		got := resourceVersionOf(runtime.ContentTypeProtobuf, body)
		object, _, err := decoder.Decode(body, nil, nil)
		if err != nil || !bytes.HasPrefix(body, protobufMagic) {
			return
		}
		// Where the real decoder reads an object, the version must be its own,
		// or that of a repeated field, which no encoder writes.
		if accessor, err := meta.Accessor(object); err == nil && got != "" && accessor.GetResourceVersion() == "" {
			t.Errorf("got %q of an object that has none", got)
		}
	})
}
