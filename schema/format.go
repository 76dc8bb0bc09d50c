package schema

import (
	"crypto/tls"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// formats are the named forms of strings: each returns what is wrong, or nothing.
var formats = map[string]func(string) string{
	"ip": func(s string) string {
		if addr, err := netip.ParseAddr(s); err != nil || addr.Zone() != "" {
			return fmt.Sprintf("got %s, expected an IP address such as 0.0.0.0, 127.0.0.1 or ::", show(s))
		}
		return ""
	},
	"cidr": func(s string) string {
		if _, err := netip.ParsePrefix(s); err != nil {
			return fmt.Sprintf("got %s, expected an address range such as 10.244.0.0/16 or fd00:10:244::/56", show(s))
		}
		return ""
	},
	"dnsLabel": func(s string) string {
		if s != "" && len(validation.IsDNS1123Label(s)) > 0 {
			return fmt.Sprintf("got %s, expected lower-case letters, digits and '-', starting and ending with "+
				"a letter or digit, at most %d characters", show(s), validation.DNS1123LabelMaxLength)
		}
		return ""
	},
	"dnsSubdomain": checkSubdomain,
	"dnsSubdomainOrEmpty": func(s string) string {
		if s == "" {
			return ""
		}
		return checkSubdomain(s)
	},
	"path": func(s string) string {
		switch {
		case strings.Contains(s, "-----BEGIN"):
			return "looks like the content of a PEM file, expected the file's path"
		case strings.ContainsFunc(s, unicode.IsControl):
			return "holds control characters, expected a path"
		case s != strings.TrimSpace(s):
			return fmt.Sprintf("got %s, expected a path without spaces around it", show(s))
		}
		return ""
	},
	"pathPattern": func(s string) string {
		if !strings.HasPrefix(s, "/") || strings.Contains(strings.TrimSuffix(s, "*"), "*") ||
			strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
			return fmt.Sprintf("got %s, expected an HTTP path that starts with / and has * only at its end, such as /healthz/*",
				show(s))
		}
		return ""
	},
	"cipherSuite": checkCipherSuite,
}

func checkSubdomain(s string) string {
	if len(validation.IsDNS1123Subdomain(s)) > 0 {
		return fmt.Sprintf("got %s, expected lower-case letters, digits, '-' and '.', starting and ending with "+
			"a letter or digit, at most %d characters", show(s), validation.DNS1123SubdomainMaxLength)
	}
	return ""
}

// cipherSuites returns the names of the TLS 1.2 cipher suites that may be configured.
func cipherSuites() []string {
	var names []string
	for _, suite := range tls.CipherSuites() {
		if slices.Contains(suite.SupportedVersions, tls.VersionTLS12) {
			names = append(names, suite.Name)
		}
	}
	slices.Sort(names)
	return names
}

func checkCipherSuite(s string) string {
	names := cipherSuites()
	if slices.Contains(names, s) {
		return ""
	}
	named := func(suite *tls.CipherSuite) bool { return suite.Name == s }
	switch {
	case slices.ContainsFunc(tls.CipherSuites(), named):
		return fmt.Sprintf("%s belongs to TLS 1.3, whose suites are not configurable; leave it out", s)
	case slices.ContainsFunc(tls.InsecureCipherSuites(), named):
		return fmt.Sprintf("%s is insecure and not offered; leave it out", s)
	}
	hint := didYouMean(s, names)
	if hint == "" {
		hint = "; expected " + alternatives(names)
	}
	return fmt.Sprintf("got %s, which is not a cipher suite%s", show(s), hint)
}
