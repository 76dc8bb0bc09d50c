//go:build tools

// Package tools pins the Kubernetes programs that the local control plane is
// built from, and Kubernetes' own end-to-end tests. What the root module needs
// too has the same version here, so that it is compiled once for both.
package tools

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/cmd/kube-apiserver"
	_ "k8s.io/kubernetes/cmd/kube-controller-manager"
	_ "k8s.io/kubernetes/cmd/kube-scheduler"
	_ "k8s.io/kubernetes/test/e2e"
)
