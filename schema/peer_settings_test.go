package schema

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	peer "k8s.io/kube-controller-manager/config/v1alpha1"
)

// peerFlags are all flags that kube-controller-manager 1.37 accepts.
const peerFlags = `
allocate-node-cidrs allow-metric-labels allow-metric-labels-manifest allow-untagged-cloud
attach-detach-reconcile-sync-period authentication-kubeconfig authentication-skip-lookup
authentication-token-webhook-cache-ttl authentication-tolerate-lookup-failure authorization-always-allow-paths
authorization-kubeconfig authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl
bind-address cert-dir cidr-allocator-type client-ca-file cloud-config cloud-provider cluster-cidr cluster-name
cluster-signing-cert-file cluster-signing-duration cluster-signing-key-file
cluster-signing-kube-apiserver-client-cert-file cluster-signing-kube-apiserver-client-key-file
cluster-signing-kubelet-client-cert-file cluster-signing-kubelet-client-key-file
cluster-signing-kubelet-serving-cert-file cluster-signing-kubelet-serving-key-file
cluster-signing-legacy-unknown-cert-file cluster-signing-legacy-unknown-key-file concurrent-cron-job-syncs
concurrent-daemonset-syncs concurrent-deployment-syncs concurrent-device-taint-eviction-syncs
concurrent-disruption-syncs concurrent-endpoint-syncs concurrent-ephemeralvolume-syncs concurrent-gc-syncs
concurrent-horizontal-pod-autoscaler-syncs concurrent-job-syncs concurrent-namespace-syncs concurrent-rc-syncs
concurrent-replicaset-syncs concurrent-resource-quota-syncs concurrent-resourceclaim-syncs
concurrent-service-endpoint-syncs concurrent-serviceaccount-token-syncs concurrent-statefulset-syncs
concurrent-ttl-after-finished-syncs concurrent-validating-admission-policy-status-syncs configure-cloud-routes
contention-profiling controller-shutdown-timeout controller-start-interval controllers
disable-attach-detach-reconcile-sync disable-force-detach-on-timeout disable-http2-serving disabled-metrics
emulated-version enable-dynamic-provisioning enable-garbage-collector enable-hostpath-provisioner
enable-leader-migration endpoint-updates-batch-period endpointslice-updates-batch-period external-cloud-volume-plugin
feature-gates flex-volume-plugin-dir help horizontal-pod-autoscaler-cpu-initialization-period
horizontal-pod-autoscaler-downscale-stabilization horizontal-pod-autoscaler-initial-readiness-delay
horizontal-pod-autoscaler-sync-period horizontal-pod-autoscaler-tolerance http2-max-streams-per-connection
kube-api-burst kube-api-content-type kube-api-qps kubeconfig large-cluster-size-threshold leader-elect
leader-elect-lease-duration leader-elect-renew-deadline leader-elect-resource-lock leader-elect-resource-name
leader-elect-resource-namespace leader-elect-retry-period leader-migration-config
legacy-service-account-token-clean-up-period log-flush-frequency log-json-info-buffer-size log-json-split-stream
log-text-info-buffer-size log-text-split-stream logging-format master max-endpoints-per-slice
min-compatibility-version min-resync-period mirroring-concurrent-service-endpoint-syncs
mirroring-endpointslice-updates-batch-period mirroring-max-endpoints-per-subset namespace-sync-period
node-cidr-mask-size node-cidr-mask-size-ipv4 node-cidr-mask-size-ipv6 node-eviction-rate node-monitor-grace-period
node-monitor-period node-startup-grace-period node-sync-period permit-address-sharing permit-port-sharing profiling
pv-recycler-increment-timeout-nfs pv-recycler-minimum-timeout-hostpath pv-recycler-minimum-timeout-nfs
pv-recycler-pod-template-filepath-hostpath pv-recycler-pod-template-filepath-nfs
pv-recycler-timeout-increment-hostpath pvclaimbinder-sync-period requestheader-allowed-names
requestheader-client-ca-file requestheader-extra-headers-prefix requestheader-group-headers requestheader-uid-headers
requestheader-username-headers resource-quota-sync-period root-ca-file route-reconciliation-period
secondary-node-eviction-rate secure-port service-account-private-key-file service-cluster-ip-range
show-hidden-metrics-for-version terminated-pod-gc-threshold tls-cert-file tls-cipher-suites tls-curve-preferences
tls-min-version tls-private-key-file tls-sni-cert-key unhealthy-zone-threshold use-service-account-credentials v
version vmodule
`

func TestEveryFlagOfThePeerIsKnown(t *testing.T) {
	t.Parallel()
	want := append(strings.Fields(peerFlags), "concurrent-service-syncs") // the last is carried for 1.36 and before
	slices.Sort(want)
	var have []string
	for _, setting := range peerSettings() {
		if setting.flag != "" {
			have = append(have, setting.flag)
		}
	}
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("flags (-want +have):\n%s", diff)
	}
	for _, removed := range removedFlags() {
		if slices.Contains(have, removed.flag) || removed.version == "" || removed.remedy == "" {
			t.Errorf("removed flag %+v", removed)
		}
	}
}

func TestEveryFieldOfThePeerIsKnown(t *testing.T) {
	t.Parallel()
	var want []string
	shapeOf(reflect.TypeFor[peer.KubeControllerManagerConfiguration](), "").each("", func(path string, _ *field) {
		want = append(want, path)
	})
	slices.Sort(want)
	var have []string
	for _, setting := range peerSettings() {
		if setting.field != "" {
			have = append(have, setting.field)
		}
	}
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("fields (-want +have):\n%s", diff)
	}
}

// A setting either has a place here, or a way to it, or a reason why not.
func TestEverySettingOfThePeerLeadsSomewhere(t *testing.T) {
	t.Parallel()
	s := NewScheme()
	types := shapeOf(reflect.TypeFor[peer.KubeControllerManagerConfiguration](), "")
	for _, setting := range peerSettings() {
		ways := 0
		for _, is := range []bool{len(setting.to) > 0, setting.carry != nil, setting.why != ""} {
			if is {
				ways++
			}
		}
		if ways != 1 {
			t.Errorf("%s has %d of a place, a way and a reason, want one", setting.id(), ways)
		}
		for _, path := range setting.to {
			if target := s.root.find(path); target == nil || target.kind != setting.kind {
				t.Errorf("%s: no place of its kind is called %s", setting.id(), path)
			}
		}
		if setting.field != "" {
			if kind := types.find(setting.field).kind; kind != setting.kind {
				t.Errorf("%s: the field %s is of kind %v, not %v", setting.id(), setting.field, kind, setting.kind)
			}
		}
	}
}
