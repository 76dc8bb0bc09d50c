# Everything runs with the Go toolchain alone; tools are built from pinned sources on first use.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# The second and third tell the API server, in the user agent, who is calling.
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION) -X k8s.io/client-go/pkg/version.gitVersion=$(VERSION) -X k8s.io/client-go/pkg/version.gitCommit=$(COMMIT)

# Without it gRPC, which nothing uses at run time, brings templates along, for
# which the linker keeps all that could be called by its name: half as much again.
TAGS := grpcnotrace

# The same for all that is built, so that packages are compiled once, and without
# paths, so that clones in other directories share them. test/controlplane and
# test/daemon build with these flags too. Only the race detector needs cgo.
export GOFLAGS     := $(GOFLAGS) -trimpath -tags=$(TAGS)
export CGO_ENABLED := 0

LINT          := $(GO) tool -modfile=test/tools/go.mod golangci-lint
CONTROL_PLANE := $(GO) run ./test/controlplane/cmd/controlplane
MODULES       := . test/tools test/controlplane/build/etcd test/controlplane/build/kubernetes test/controlplane/build/kwok

# Test binaries at the same time, each with an API server of its own, and
# tests at the same time in each: they wait more than they compute.
TEST_BINARIES ?= 2
TEST_PARALLEL ?= 8
TEST_TIMEOUT  ?= 30m
# make lint vets all packages. Nobody debugs these binaries, of which there are
# some 60, and the linker is faster without symbols and debug information.
TEST_FLAGS    := -p $(TEST_BINARIES) -parallel $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT) -vet=off -ldflags=-s
# The one that takes longest begins first.
PACKAGES      ?= ./test/e2e ./...

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/controller-manager
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/controller-manager

.PHONY: run
run: build ## Run it beside a local control plane with 4 simulated nodes; files are in .run/
	@$(GO) build -o bin/ ./test/controlplane/cmd/controlplane
	@bin/controlplane run

.PHONY: control-plane
control-plane: ## Build etcd, kube-apiserver and the like for tests, once, into the user's cache
	@$(CONTROL_PLANE) build

.PHONY: test
test: control-plane ## Run all tests with the race detector (PACKAGES=./… for some)
	CGO_ENABLED=1 $(GO) test -race $(TEST_FLAGS) $(PACKAGES)

.PHONY: test-fast
test-fast: control-plane ## Run all tests without the race detector
	$(GO) test $(TEST_FLAGS) $(PACKAGES)

# What passes here does not rest on what a cache has seen by some time.
LAG ?= 1s

.PHONY: test-lag
test-lag: control-plane ## Run all tests while watches and answers of the API server come late, by up to LAG=1s
	TEST_LAG=$(LAG) $(GO) test $(TEST_FLAGS) $(PACKAGES)

# SCALE=full makes the tests larger that can be; the others of these packages are
# left out. They bound a time, of which the race detector would take most.
.PHONY: test-scale
test-scale: control-plane ## Run the reload tests of Services at full size, 200 Services × 25 pods
	SCALE=full $(GO) test -count=1 -p 1 -v -timeout $(TEST_TIMEOUT) -run '^TestReloadsChangeNothing$$' ./controllers/endpoints ./controllers/endpointslice

.PHONY: cover
cover: control-plane ## Run all tests and write coverage to cover.out
	$(GO) test $(TEST_FLAGS) -coverpkg=./cmd/...,./controllers/...,./runtime/...,./schema/... -coverprofile=cover.out $(PACKAGES)
	@$(GO) tool cover -func=cover.out | tail -1

BENCH ?= .

.PHONY: bench
bench: control-plane build ## Measure it against kube-controller-manager, in the same run (BENCH=Jobs for some)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime 1x -timeout 3h ./test/bench/...

# PEER=1 runs kube-controller-manager instead. FOCUS chooses tests by a regular expression.
.PHONY: conformance
conformance: control-plane build ## Run Kubernetes' own Conformance tests of its controllers (PEER=1 for kube-controller-manager)
	$(GO) run ./test/conformance $(if $(PEER),-peer) $(if $(FOCUS),-focus '$(FOCUS)')

.PHONY: lint
lint: ## Check style, module files, generated files and formatting
	$(LINT) run ./...
	@for module in $(MODULES); do (cd $$module && $(GO) mod tidy -diff) || { echo "run go mod tidy in $$module"; exit 1; }; done
	$(GO) run ./schema/internal/reference check

.PHONY: generate
generate: ## Make the generated files anew: JSON Schema, reference page, controller-manager.yaml
	$(GO) generate ./...

.PHONY: format
format: ## Format all Go files
	$(LINT) fmt

.PHONY: screenshot
screenshot: ## Take the pictures of the status page for the docs (needs chromium)
	SCREENSHOTS=$(CURDIR)/docs/images $(GO) test -count=1 -tags screenshot -run TestScreenshot -v ./runtime/server

.PHONY: clean
clean: ## Remove what was built and the files of make run
	rm -rf bin .run cover.out
