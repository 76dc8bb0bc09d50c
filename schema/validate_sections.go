package schema

import (
	"fmt"
	"net/netip"
)

// Validate implements Validator.
func (s *CertificateSigningRequestSigningController) Validate(_ *ControllerManagerConfiguration, report func(string, ...string)) {
	specific := []struct {
		name   string
		signer Signer
	}{
		{"kubeletServing", s.KubeletServing},
		{"kubeletClient", s.KubeletClient},
		{"kubeAPIServerClient", s.KubeAPIServerClient},
		{"legacyUnknown", s.LegacyUnknown},
	}
	reportPair(s.CertFile, s.KeyFile, "", report)
	for _, one := range specific {
		reportPair(one.signer.CertFile, one.signer.KeyFile, one.name+".", report)
		if (s.CertFile != "" || s.KeyFile != "") && one.signer != (Signer{}) {
			report(fmt.Sprintf("a CA for all signers (certFile, keyFile) and one for %s exclude each other", one.name),
				one.name+".certFile", one.name+".keyFile", "certFile", "keyFile")
		}
	}
}

// reportPair checks that a certificate and its key are given together.
func reportPair(certFile, keyFile, prefix string, report func(string, ...string)) {
	switch {
	case certFile != "" && keyFile == "":
		report("certFile is given without keyFile; give both or neither", prefix+"certFile", prefix+"keyFile")
	case certFile == "" && keyFile != "":
		report("keyFile is given without certFile; give both or neither", prefix+"keyFile", prefix+"certFile")
	}
}

// maxIPv6Split is how many bits an IPv6 node range may be longer than the cluster
// range: the allocator keeps one bit per node range.
const maxIPv6Split = 16

// Validate implements Validator.
func (s *NodeIPAMController) Validate(config *ControllerManagerConfiguration, report func(string, ...string)) {
	if !s.Enabled || !config.Cluster.AllocateNodeCIDRs {
		return
	}
	const ranges = "/cluster.clusterCIDRs"
	cidrs := config.Cluster.ClusterCIDRs
	if len(cidrs) == 0 {
		report("cluster.clusterCIDRs is empty, but node-ipam-controller needs a range when cluster.allocateNodeCIDRs is true",
			ranges, "/cluster.allocateNodeCIDRs", "enabled")
		return
	}
	perFamily := s.NodeCIDRMaskSizeIPv4 != 0 || s.NodeCIDRMaskSizeIPv6 != 0
	if s.NodeCIDRMaskSize != 0 && len(cidrs) > 1 {
		report("nodeCIDRMaskSize is for a single address family; set nodeCIDRMaskSizeIPv4 and nodeCIDRMaskSizeIPv6", "nodeCIDRMaskSize", ranges)
		return
	}
	if s.NodeCIDRMaskSize != 0 && perFamily {
		report("nodeCIDRMaskSize excludes nodeCIDRMaskSizeIPv4 and nodeCIDRMaskSizeIPv6", "nodeCIDRMaskSize", "nodeCIDRMaskSizeIPv4", "nodeCIDRMaskSizeIPv6")
		return
	}
	families := map[bool]bool{}
	for _, cidr := range cidrs {
		families[isIPv6(cidr)] = true
		s.validateSplit(cidr, ranges, report)
	}
	if s.NodeCIDRMaskSizeIPv4 != 0 && !families[false] {
		report("nodeCIDRMaskSizeIPv4 is set, but cluster.clusterCIDRs has no IPv4 range", "nodeCIDRMaskSizeIPv4", ranges)
	}
	if s.NodeCIDRMaskSizeIPv6 != 0 && !families[true] {
		report("nodeCIDRMaskSizeIPv6 is set, but cluster.clusterCIDRs has no IPv6 range", "nodeCIDRMaskSizeIPv6", ranges)
	}
}

// validateSplit checks that a cluster range can be split into node ranges.
func (s *NodeIPAMController) validateSplit(cidr, ranges string, report func(string, ...string)) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return // reported as a fault of the range itself
	}
	v6 := prefix.Addr().Is6()
	size, field := 24, "nodeCIDRMaskSizeIPv4"
	if v6 {
		size, field = 64, "nodeCIDRMaskSizeIPv6"
	}
	own := s.NodeCIDRMaskSizeIPv4
	if v6 {
		own = s.NodeCIDRMaskSizeIPv6
	}
	switch {
	case own != 0:
		size = own
	case s.NodeCIDRMaskSize != 0:
		size, field = s.NodeCIDRMaskSize, "nodeCIDRMaskSize"
	}
	switch {
	case size > prefix.Addr().BitLen():
		report(fmt.Sprintf("%s is %d, expected at most %d for the range %s", field, size, prefix.Addr().BitLen(), prefix), field, ranges)
	case size < prefix.Bits():
		report(fmt.Sprintf("node ranges of /%d do not fit into the cluster range %s", size, prefix), field, ranges)
	case v6 && size-prefix.Bits() > maxIPv6Split:
		report(fmt.Sprintf("node ranges of /%d are too many for the cluster range %s; expected at most %d bits between them, so at most /%d",
			size, prefix, maxIPv6Split, prefix.Bits()+maxIPv6Split), field, ranges)
	}
}
