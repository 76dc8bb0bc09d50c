package schema

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// renewFactor is the jitter that client-go adds to the retry period; its elector
// refuses a renew deadline that is not longer than the jittered period.
const renewFactor = 1.2

func (v *validator) validate() {
	c := v.config
	v.limits(c.Cluster.Client.QPS, c.Cluster.Client.Burst, "cluster.client")
	v.families(c.Cluster.ClusterCIDRs, "cluster.clusterCIDRs")
	v.families(c.Cluster.ServiceCIDRs, "cluster.serviceCIDRs")
	v.election(c.LeaderElection)
	v.server(c.Server)
	v.featureGates(c.FeatureGates)
	for _, name := range sortedKeys(c.Controllers.Sections) {
		v.section(name, c.Controllers.Sections[name])
	}
}

func (v *validator) limits(qps float64, burst int, path string) {
	if qps > 0 && burst < 1 {
		v.fault(fmt.Sprintf("burst is %d, expected at least 1 because qps is %g", burst, qps), path+".burst", path+".qps")
	}
}

// families checks that two ranges are of different address families.
func (v *validator) families(ranges []string, path string) {
	if len(ranges) != 2 {
		return
	}
	if isIPv6(ranges[0]) == isIPv6(ranges[1]) {
		v.fault(fmt.Sprintf("both ranges, %s and %s, are of one address family; expected one IPv4 and one IPv6 range",
			show(ranges[0]), show(ranges[1])), path)
	}
}

// isIPv6 is asked about ranges that were checked before, or are left out then.
func isIPv6(cidr string) bool {
	prefix, err := netip.ParsePrefix(cidr)
	return err == nil && prefix.Addr().Is6()
}

func (v *validator) election(e LeaderElection) {
	const lease, renew, retry = "leaderElection.leaseDuration", "leaderElection.renewDeadline", "leaderElection.retryPeriod"
	if e.RenewDeadline.Duration >= e.LeaseDuration.Duration {
		v.fault(fmt.Sprintf("renewDeadline %s must be shorter than leaseDuration %s", e.RenewDeadline.Duration, e.LeaseDuration.Duration),
			renew, lease)
	}
	if shortest := time.Duration(renewFactor * float64(e.RetryPeriod.Duration)); e.RenewDeadline.Duration <= shortest {
		v.fault(fmt.Sprintf("renewDeadline %s must be longer than %g × retryPeriod %s, which is %s",
			e.RenewDeadline.Duration, renewFactor, e.RetryPeriod.Duration, shortest), renew, retry)
	}
}

// http2Suites are the suites of which HTTP/2 needs one, RFC 9113 section 9.2.2.
var http2Suites = [...]string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}

func (v *validator) server(s Server) {
	reportPair(s.TLS.CertFile, s.TLS.KeyFile, "server.tls.", v.fault)
	if len(s.TLS.CipherSuites) == 0 || s.TLS.MinVersion == "VersionTLS13" {
		return
	}
	if !slices.Contains(s.TLS.CipherSuites, http2Suites[0]) && !slices.Contains(s.TLS.CipherSuites, http2Suites[1]) {
		v.fault("no cipher suite is there that HTTP/2 requires; add "+alternatives(http2Suites[:]), "server.tls.cipherSuites")
	}
}

func (v *validator) featureGates(given map[string]bool) {
	for _, gate := range gates {
		value, ok := given[gate.Name]
		if ok && gate.Locked && value != gate.Default {
			v.fault(fmt.Sprintf("the gate is locked to %t; remove it", gate.Default), "featureGates."+gate.Name)
		}
	}
}
