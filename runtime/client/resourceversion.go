package client

import (
	"bytes"
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
)

// resourceVersionOf returns metadata.resourceVersion of an object in the body
// of a response; empty when there is none, as in a Status, or when the body
// cannot be read.
func resourceVersionOf(contentType string, body []byte) string {
	var kind, version string
	switch {
	case strings.HasPrefix(contentType, runtime.ContentTypeProtobuf):
		kind, version = protobufVersion(body)
	case strings.HasPrefix(contentType, runtime.ContentTypeJSON):
		kind, version = jsonVersion(body)
	}
	if kind == "Status" {
		return ""
	}
	return version
}

func jsonVersion(body []byte) (kind, version string) {
	var object struct {
		Kind     string `json:"kind"`
		Metadata struct {
			Name            string `json:"name"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &object); err != nil {
		return "", ""
	}
	if object.Metadata.Name == "" { // a list, which the answer to the deletion of many is
		return "", ""
	}
	return object.Kind, object.Metadata.ResourceVersion
}

// protobufMagic starts every protobuf body of the Kubernetes API; an encoded
// runtime.Unknown follows.
var protobufMagic = []byte("k8s\x00")

// Field numbers, from generated.proto of apimachinery's pkg/runtime and
// pkg/apis/meta/v1. Every object has its ObjectMeta in field 1; a list has a
// ListMeta there, which has no field 6.
const (
	unknownTypeMeta           protowire.Number = 1
	unknownRaw                protowire.Number = 2
	typeMetaKind              protowire.Number = 2
	objectMetadata            protowire.Number = 1
	objectMetaResourceVersion protowire.Number = 6
)

func protobufVersion(body []byte) (kind, version string) {
	unknown, ok := bytes.CutPrefix(body, protobufMagic)
	if !ok {
		return "", ""
	}
	kind = string(bytesField(bytesField(unknown, unknownTypeMeta), typeMetaKind))
	metadata := bytesField(bytesField(unknown, unknownRaw), objectMetadata)
	return kind, string(bytesField(metadata, objectMetaResourceVersion))
}

// bytesField returns the first field of a message with a number and a length;
// nil when there is none.
func bytesField(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		found, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if found == number && wireType == protowire.BytesType {
			value, n := protowire.ConsumeBytes(message)
			if n < 0 {
				return nil
			}
			return value
		}
		if n = protowire.ConsumeFieldValue(found, wireType, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}
