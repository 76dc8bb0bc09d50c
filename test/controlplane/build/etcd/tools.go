//go:build tools

// Package tools pins the etcd that the local control plane is built from.
package tools

import _ "go.etcd.io/etcd/server/v3"
