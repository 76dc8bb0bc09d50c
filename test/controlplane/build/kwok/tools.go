//go:build tools

// Package tools pins the kwok that simulates kubelets in the local control
// plane. What the root module needs too has the same version here, so that it is
// compiled once for both.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
