package schema_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelhouse-project/wheelhouse/schema"
)

// convert makes a configuration from a command line and reads the file back.
func convert(t *testing.T, s *schema.Scheme, args ...string) (*schema.ControllerManagerConfiguration, schema.Conversion) {
	t.Helper()
	conversion, err := s.ConvertCommandLine(args)
	if err != nil {
		t.Fatal(err)
	}
	config, errs := load(t, s, "converted.yaml", conversion.File)
	if len(errs) > 0 {
		t.Fatalf("%v\n%s", errs, conversion.File)
	}
	return config, conversion
}

func notes(list []schema.Note) string {
	lines := make([]string, len(list))
	for i, note := range list {
		lines[i] = note.String()
	}
	return strings.Join(lines, "\n")
}

// own has the flags that keep notes about the peer's defaults away.
var own = []string{"--use-service-account-credentials", "--kube-api-qps=-1"}

func TestConvertCommandLine(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	type config = schema.ControllerManagerConfiguration
	common := func(c *config, name string) *schema.ControllerSettings { return c.Controllers.Sections[name].Base() }
	nothing := func(*config) {}
	tests := []struct {
		name           string
		args           []string
		change         func(*config)
		dropped, notes string
	}{
		{"nothing", nil, nothing, "", ""},
		{"program in front", []string{"/usr/local/bin/kube-controller-manager", "--concurrent-job-syncs=9"},
			func(c *config) { common(c, "job-controller").Workers = 9 }, "", ""},
		{"value apart, underscores, last one counts", []string{"--concurrent_job_syncs", "8", "--concurrent-job-syncs=9"},
			func(c *config) { common(c, "job-controller").Workers = 9 }, "", ""},
		{"no workers", []string{"--concurrent-gc-syncs=0", "--concurrent-rc-syncs=-3"}, func(c *config) {
			common(c, "garbage-collector-controller").Enabled = false
			common(c, "replicationcontroller-controller").Enabled = false
		}, "", "--concurrent-gc-syncs=0: kube-controller-manager starts no worker then, so that garbage-collector-controller is turned off\n" +
			"--concurrent-rc-syncs=-3: kube-controller-manager starts no worker then, so that replicationcontroller-controller is turned off"},
		{"star and names", []string{"--controllers=*,bootstrapsigner,tokencleaner,-ttl"}, func(c *config) {
			common(c, "bootstrap-signer-controller").Enabled = true
			common(c, "token-cleaner-controller").Enabled = true
			common(c, "ttl-controller").Enabled = false
		}, "", ""},
		{"the first item decides", []string{"--controllers=-ttl-controller,*", "--controllers=ttl,-ttl"},
			func(c *config) { common(c, "ttl-controller").Enabled = false }, "", ""},
		{"star anywhere", []string{"--controllers=-ttl", "--controllers=*"},
			func(c *config) { common(c, "ttl-controller").Enabled = false }, "", ""},
		{"no star", []string{"--controllers=deployment,replicaset"}, func(c *config) {
			for name, section := range c.Controllers.Sections {
				section.Base().Enabled = name == "deployment-controller" || name == "replicaset-controller" ||
					name == "serviceaccount-token-controller"
			}
		}, "", ""},
		{"the token controller cannot be turned off", []string{"--controllers=*,-serviceaccount-token"}, nothing, "",
			"--controllers=*,-serviceaccount-token: kube-controller-manager runs serviceaccount-token-controller whatever the list says, " +
				"and so does this file; set its enabled: false to turn it off"},
		{"unknown controller", []string{"--controllers=*,-depolyment"}, nothing,
			`--controllers=-depolyment: no controller is called "depolyment"; did you mean "deployment"?`, ""},
		{"names of 1.25", []string{"--controllers=*,-service,-route,-cloud-node-lifecycle"}, nothing, "", ""},
		{"cloud controllers of 1.25", []string{"--cloud-provider=aws", "--cloud-config=/etc/cloud.conf", "--configure-cloud-routes=false",
			"--concurrent-service-syncs=3", "--allow-untagged-cloud"}, func(c *config) {
			c.Cluster.CloudProvider = schema.CloudProvider{Name: "aws", ConfigFile: "/etc/cloud.conf", AllowUntagged: true}
			common(c, "service-lb-controller").Enabled = true
			common(c, "service-lb-controller").Workers = 3
			common(c, "cloud-node-lifecycle-controller").Enabled = true
		}, "", ""},
		{"external cloud", []string{"--cloud-provider=external"}, func(c *config) { c.Cluster.CloudProvider.Name = "external" }, "", ""},
		{"garbage collector off", []string{"--enable-garbage-collector=false"},
			func(c *config) { common(c, "garbage-collector-controller").Enabled = false }, "", ""},
		{"one flag, several places", []string{"--root-ca-file=/ca.crt", "--node-monitor-period=2s"}, func(c *config) {
			c.Controllers.Sections["serviceaccount-token-controller"].(*schema.ServiceAccountTokenController).RootCAFile = "/ca.crt"
			c.Controllers.Sections["root-ca-certificate-publisher-controller"].(*schema.RootCACertificatePublisherController).RootCAFile = "/ca.crt"
			c.Controllers.Sections["kube-apiserver-serving-clustertrustbundle-publisher-controller"].(*schema.KubeAPIServerServingClusterTrustBundlePublisherController).RootCAFile = "/ca.crt"
			c.Controllers.Sections["node-lifecycle-controller"].(*schema.NodeLifecycleController).NodeMonitorPeriod.Duration = 2 * time.Second
			c.Controllers.Sections["cloud-node-lifecycle-controller"].(*schema.CloudNodeLifecycleController).NodeMonitorPeriod.Duration = 2 * time.Second
		}, "", ""},
		{"ranges", []string{"--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/16,fd00::/48", "--service-cluster-ip-range=10.96.0.0/12,fd01::/112",
			"--node-cidr-mask-size-ipv6=64"}, func(c *config) {
			c.Cluster.AllocateNodeCIDRs = true
			c.Cluster.ClusterCIDRs = []string{"10.0.0.0/16", "fd00::/48"}
			c.Cluster.ServiceCIDRs = []string{"10.96.0.0/12", "fd01::/112"}
			c.Controllers.Sections["node-ipam-controller"].(*schema.NodeIPAMController).NodeCIDRMaskSizeIPv6 = 64
		}, "", ""},
		{"signers", []string{"--cluster-signing-cert-file=/ca.crt", "--cluster-signing-key-file=/ca.key", "--cluster-signing-duration=48h"},
			func(c *config) {
				signing := c.Controllers.Sections["certificatesigningrequest-signing-controller"].(*schema.CertificateSigningRequestSigningController)
				signing.CertFile, signing.KeyFile, signing.Duration.Duration = "/ca.crt", "/ca.key", 48*time.Hour
			}, "", ""},
		{"half a signer", []string{"--cluster-signing-cert-file=/ca.crt"}, nothing,
			"--cluster-signing-cert-file=/ca.crt: kube-controller-manager signs nothing when --cluster-signing-key-file is missing; give both", ""},
		{"seconds", []string{"--pv-recycler-minimum-timeout-nfs=90"}, func(c *config) {
			c.Controllers.Sections["persistentvolume-binder-controller"].(*schema.PersistentVolumeBinderController).
				Recycler.NFS.MinimumTimeout.Duration = 90 * time.Second
		}, "", ""},
		{"what is off below zero", []string{"--terminated-pod-gc-threshold=-1", "--resource-quota-sync-period=-1s"}, func(c *config) {
			c.Controllers.Sections["pod-garbage-collector-controller"].(*schema.PodGarbageCollectorController).TerminatedPodThreshold = 0
			c.Controllers.Sections["resourcequota-controller"].(*schema.ResourceQuotaController).SyncPeriod.Duration = 0
		}, "", ""},
		{"server", []string{"--bind-address=127.0.0.1", "--secure-port=0", "--profiling=false", "--tls-cert-file=/tls.crt",
			"--tls-private-key-file=/tls.key", "--cert-dir=/certs", "--client-ca-file=/ca.crt", "--tls-min-version=VersionTLS13",
			"--authorization-always-allow-paths=/healthz,/metrics"}, func(c *config) {
			c.Server.BindAddress, c.Server.Port, c.Server.Profiling = "127.0.0.1", 0, false
			c.Server.TLS.CertFile, c.Server.TLS.KeyFile, c.Server.TLS.ClientCAFile = "/tls.crt", "/tls.key", "/ca.crt"
			c.Server.TLS.MinVersion = "VersionTLS13"
			c.Server.Authorization.AlwaysAllowPaths = []string{"/healthz", "/metrics"}
		}, "", ""},
		{"cipher suites", []string{"--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256",
			"--tls-min-version=VersionTLS11", "--cert-dir=/certs"}, func(c *config) {
			c.Server.TLS.CipherSuites = []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}
		}, "--cert-dir=/certs: a self-signed certificate is only kept in memory; set server.tls.certFile and keyFile to serve one from a file\n" +
			"--tls-min-version=VersionTLS11: TLS 1.2 is the least that is offered\n" +
			"--tls-cipher-suites=TLS_RSA_WITH_AES_128_GCM_SHA256: TLS_RSA_WITH_AES_128_GCM_SHA256 is insecure and not offered; leave it out\n" +
			"--tls-cipher-suites=TLS_AES_128_GCM_SHA256: TLS_AES_128_GCM_SHA256 belongs to TLS 1.3, whose suites are not configurable; leave it out", ""},
		{"delegation by the same kubeconfig", []string{"--kubeconfig=/k", "--authentication-kubeconfig=/k", "--authorization-kubeconfig=/k"},
			func(c *config) { c.Cluster.Kubeconfig = "/k" }, "", ""},
		{"delegation by another kubeconfig", []string{"--kubeconfig=/k", "--authentication-kubeconfig=/other"},
			func(c *config) { c.Cluster.Kubeconfig = "/k" },
			"--authentication-kubeconfig=/other: tokens and permissions of callers are checked with cluster.kubeconfig", ""},
		{"log", []string{"-v=4", "--logging-format=json", "--vmodule=x=3"},
			func(c *config) { c.Logging.Level, c.Logging.Format = 4, "json" },
			"--vmodule=x=3: set logging.modules, by controller instead of by source file", ""},
		{"short form apart", []string{"-v", "2"}, func(c *config) { c.Logging.Level = 2 }, "", ""},
		{"level beyond the highest", []string{"--v=99"}, func(c *config) { c.Logging.Level = 10 }, "",
			"--v=99: carried as 10, the highest level"},
		{"shutdown", []string{"--controller-shutdown-timeout=20s"}, func(c *config) { c.Reload.DrainTimeout.Duration = 20 * time.Second }, "",
			"--controller-shutdown-timeout=20s: reload.drainTimeout bounds how long a stopping controller may finish, at exit and at a reload"},
		{"endless shutdown", []string{"--controller-shutdown-timeout=0"}, nothing,
			"--controller-shutdown-timeout=0s: controllers are not waited for without end; set reload.drainTimeout", ""},
		{"gates", []string{"--feature-gates=AllAlpha=true,kube:GenericWorkload=True", "--feature-gates=NoSuchGate=true,JobManagedBy=false,WatchListClient"},
			func(c *config) { c.FeatureGates = map[string]bool{"AllAlpha": true, "GenericWorkload": true} },
			"--feature-gates=NoSuchGate=true: no controller and no part of the engine reads this gate\n" +
				"--feature-gates=JobManagedBy=false: the gate is locked to true\n" +
				"--feature-gates=WatchListClient: expected NAME=true or NAME=false", ""},
		{"election", []string{"--leader-elect=false", "--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=20s",
			"--leader-elect-retry-period=5s", "--leader-elect-resource-name=mine", "--leader-elect-resource-namespace=there",
			"--leader-elect-resource-lock=endpointsleases"}, func(c *config) {
			c.LeaderElection.Enabled = false
			c.LeaderElection.LeaseDuration.Duration = 30 * time.Second
			c.LeaderElection.RenewDeadline.Duration = 20 * time.Second
			c.LeaderElection.RetryPeriod.Duration = 5 * time.Second
			c.LeaderElection.ResourceName, c.LeaderElection.ResourceNamespace = "mine", "there"
		}, "--leader-elect-resource-lock=endpointsleases: only Leases are used as locks; a process that holds another kind of lock would not be noticed", ""},
		{"flags without counterpart at their defaults", []string{"--min-resync-period=12h", "--contention-profiling=false",
			"--http2-max-streams-per-connection=0", "--requestheader-username-headers=x-remote-user", "--log-flush-frequency=5s"}, nothing, "", ""},
		{"flags without counterpart", []string{"--min-resync-period=1h", "--master=https://10.0.0.1", "--node-sync-period=10s",
			"--external-cloud-volume-plugin=x"}, nothing,
			"--master=https://10.0.0.1: put the API server's address into the file that cluster.kubeconfig names\n" +
				"--external-cloud-volume-plugin=x: has no effect in kube-controller-manager either\n" +
				"--node-sync-period=10s: has no effect in kube-controller-manager either\n" +
				"--min-resync-period=1h0m0s: informers are not resynced; controllers that look at everything from time to time have a period of their own", ""},
		{"removed flags", []string{"--pod-eviction-timeout=5m", "--logtostderr", "--log_dir", "/var/log", "--enable-taint-manager=true"}, nothing,
			"--log-dir: removed from kube-controller-manager in 1.26; the log goes to standard error, redirect it\n" +
				"--logtostderr: removed from kube-controller-manager in 1.26; remove it\n" +
				"--pod-eviction-timeout: removed from kube-controller-manager in 1.27; pods say by their tolerations how long they stay on a node that is not ready\n" +
				"--enable-taint-manager: removed from kube-controller-manager in 1.27; set controllers.taint-eviction-controller.enabled", ""},
		{"unknown flags", []string{"--conccurrent-gc-syncs=5", "--conf"}, nothing,
			"--conccurrent-gc-syncs: not a flag of kube-controller-manager 1.25 to 1.37; did you mean \"concurrent-gc-syncs\"?\n" +
				"--conf: not a flag of kube-controller-manager 1.25 to 1.37", ""},
		{"unknown flag with a control character", []string{"--be\all"}, nothing,
			"\"--be\\all\": not a flag of kube-controller-manager 1.25 to 1.37", ""},
		{"malformed value", []string{"--concurrent-job-syncs=many", "--profiling=maybe", "--node-monitor-period=5"}, nothing,
			"--profiling: expected true or false, got the string \"maybe\"; kube-controller-manager refuses it too\n" +
				"--concurrent-job-syncs: expected a whole number, got the string \"many\"; kube-controller-manager refuses it too\n" +
				"--node-monitor-period: got the string \"5\" without a unit, expected a duration such as 500ms, 30s, 5m or 1h30m; " +
				"kube-controller-manager refuses it too", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// The program's name stays in front.
			have, conversion := convert(t, s, append(append([]string{}, test.args...), own...)...)
			want := s.Default()
			test.change(want)
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("(-want +have):\n%s\n%s", diff, conversion.File)
			}
			if have := notes(conversion.Dropped); have != test.dropped {
				t.Errorf("dropped\n%s\nwant\n%s", have, test.dropped)
			}
			if have := notes(conversion.Notes); have != test.notes {
				t.Errorf("notes\n%s\nwant\n%s", have, test.notes)
			}
		})
	}
}

func TestDefaultsOfThePeerThatDifferAreNoted(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	config, conversion := convert(t, s)
	if config.Cluster.UseServiceAccountCredentials {
		t.Error("controllers get identities that the peer would not give them")
	}
	want := "--use-service-account-credentials: not given, which means false there: all controllers act with the identity of the daemon; " +
		"set cluster.useServiceAccountCredentials: true to give each its own, as the roles that the API server bootstraps expect\n" +
		"--kube-api-qps: not given: kube-controller-manager limits each client to 20 requests a second with bursts of 30 then; " +
		"here API Priority and Fairness sets the pace, unless cluster.client.qps and burst are set"
	if have := notes(conversion.Notes); have != want {
		t.Errorf("notes\n%s\nwant\n%s", have, want)
	}
	for _, test := range []struct {
		args []string
		want schema.Client
	}{
		{[]string{"--kube-api-qps=50"}, schema.Client{QPS: 50, Burst: 30}},
		{[]string{"--kube-api-burst=100"}, schema.Client{QPS: 20, Burst: 100}},
		{[]string{"--kube-api-qps=50", "--kube-api-burst=100"}, schema.Client{QPS: 50, Burst: 100}},
		{[]string{"--kube-api-qps=0"}, schema.Client{QPS: 5, Burst: 30}},
		{[]string{"--kube-api-qps=0", "--kube-api-burst=0"}, schema.Client{QPS: 5, Burst: 10}},
		{[]string{"--kube-api-qps=-1", "--kube-api-burst=100"}, schema.Client{}},
	} {
		config, _ := convert(t, s, test.args...)
		test.want.ContentType = config.Cluster.Client.ContentType
		if config.Cluster.Client != test.want {
			t.Errorf("%v: %+v, want %+v", test.args, config.Cluster.Client, test.want)
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--v=2", "run"}, `the argument "run" is not a flag; kube-controller-manager takes only flags`},
		{[]string{"kube-scheduler", "--v=2"}, `the argument "kube-scheduler" is not a flag; kube-controller-manager takes only flags`},
		{[]string{"--concurrent-job-syncs"}, "the flag --concurrent-job-syncs lacks its value"},
		{[]string{"-x"}, `the flag "-x" is not one of kube-controller-manager`},
		{[]string{"--cluster-name=\xff"}, "argument 1 is not UTF-8 text"},
		{[]string{"---v"}, "read the command line: bad flag syntax: ---v"},
		{[]string{"--leader-elect-lease-duration=5s"},
			"--leader-elect-lease-duration: leaderElection.leaseDuration: renewDeadline 10s must be shorter than leaseDuration 5s"},
		{[]string{"--secure-port=70000", "--bind-address=localhost"},
			"--bind-address: server.bindAddress: got \"localhost\", expected an IP address such as 0.0.0.0, 127.0.0.1 or ::\n" +
				"--secure-port: server.port: got 70000, expected at least 0 and at most 65535"},
		{[]string{"--tls-cert-file=/tls.crt"}, "--tls-cert-file: server.tls.certFile: certFile is given without keyFile; give both or neither"},
	} {
		conversion, err := s.ConvertCommandLine(test.args)
		if err == nil || err.Error() != test.want || conversion.File != nil {
			t.Errorf("%v: error\n%v\nwant\n%s", test.args, err, test.want)
		}
	}
}

func TestConvertManifest(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	data, err := os.ReadFile("testdata/kubeadm-manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	conversion, err := s.ConvertManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("testdata/kubeadm-converted.golden")
	if *update {
		golden, err = conversion.File, os.WriteFile("testdata/kubeadm-converted.golden", conversion.File, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), string(conversion.File)); diff != "" {
		t.Errorf("(-want +have):\n%s", diff)
	}
	if _, errs := load(t, s, "converted.yaml", conversion.File); len(errs) > 0 {
		t.Error(errs)
	}
}

func TestManifestForms(t *testing.T) {
	t.Parallel()
	s := schema.NewScheme()
	const flag = "--concurrent-job-syncs=9"
	for _, test := range []struct{ name, manifest, err string }{
		{"args only", "kind: Pod\nspec:\n  containers:\n  - {name: sidecar, args: [--x]}\n  - {name: kube-controller-manager, args: ['" + flag + "']}\n", ""},
		{"by command", "kind: Pod\nspec: {containers: [{name: a, command: [/bin/kube-controller-manager, '" + flag + "']}]}\n", ""},
		{"by image", "kind: Pod\nspec: {containers: [{image: 'registry.example/kube-controller-manager-arm64:v1.25.0', args: ['" + flag + "']}]}\n", ""},
		{"pod template", "kind: DaemonSet\nspec: {template: {spec: {containers: [{name: kube-controller-manager, args: ['" + flag + "']}]}}}\n", ""},
		{"JSON", `{"kind": "Pod", "spec": {"containers": [{"name": "kube-controller-manager", "args": ["` + flag + `"]}]}}`, ""},
		{"variables", "kind: Pod\nspec: {containers: [{name: kube-controller-manager, args: ['--concurrent-job-syncs=$(N)'], env: [{name: N, value: '9'}]}]}\n", ""},
		{"shell", "kind: Pod\nspec: {containers: [{name: kube-controller-manager, command: [/bin/sh, -c, exec kube-controller-manager]}]}\n",
			`container "kube-controller-manager": runs kube-controller-manager through a shell; convert the command line itself`},
		{"another program", "kind: Pod\nspec: {containers: [{name: kube-scheduler}]}\n",
			"read the manifest: no container of the Pod runs kube-controller-manager"},
		{"not a manifest", "just text\n", "read the manifest: expected a Pod, got a scalar"},
		{"strange containers", "kind: Pod\nspec: {containers: 5}\n", "read the manifest: its containers are not those of a Pod"},
		{"broken", "kind: [\n", "manifest:1:1: is not valid YAML: did not find expected node content"},
		{"empty", "", "manifest: is empty; expected a Pod"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conversion, err := s.ConvertManifest([]byte(test.manifest))
			if test.err != "" {
				if err == nil || err.Error() != test.err {
					t.Errorf("error %v, want %s", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			config, errs := load(t, s, "converted.yaml", conversion.File)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if workers := config.Controllers.Sections["job-controller"].Base().Workers; workers != 9 {
				t.Errorf("%d workers, want 9\n%s", workers, conversion.File)
			}
		})
	}
}
