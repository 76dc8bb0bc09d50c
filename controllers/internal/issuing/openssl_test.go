package issuing

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/csrpolicy"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
)

// openSSL is the openssl command, run in a directory of its own.
type openSSL struct{ path, dir string }

// newOpenSSL skips the test on a machine without the command, which checks
// certificates by another reading of RFC 5280 than crypto/x509. .ci/run installs
// it; where CI is set in the environment it has to be there.
func newOpenSSL(t *testing.T) openSSL {
	t.Helper()
	path, err := exec.LookPath("openssl")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("CI needs the openssl command: %v", err)
		}
		t.Skipf("without the openssl command certificates are not checked by it: %v", err)
	}
	return openSSL{path, t.TempDir()}
}

func (o openSSL) run(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, o.path, arguments...)
	command.Dir = o.dir
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("openssl %s: %w\n%s", strings.Join(arguments, " "), err, output)
	}
	return string(output), nil
}

func (o openSSL) must(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := o.run(t.Context(), arguments...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

func (o openSSL) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Requests that openssl makes get certificates that it accepts, for their
// purposes and no others.
func TestOpenSSLAcceptsCertificates(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// key is how openssl makes one.
		key     []string
		subject string
		// names are the alternative names, as openssl wants them.
		names  string
		usages []certificatesv1.KeyUsage
		// purposes of openssl that the certificate is good for.
		purposes []string
		// verify are further conditions.
		verify []string
		// texts are parts of the certificate's description, without line breaks and indentation.
		texts []string
	}{
		"a kubelet's client": {
			key:      []string{"-newkey", "rsa:2048"},
			subject:  "/O=system:nodes/CN=system:node:n1",
			usages:   []certificatesv1.KeyUsage{"digital signature", "key encipherment", "client auth"},
			purposes: []string{"sslclient"},
			texts: []string{"Key Usage: critical Digital Signature, Key Encipherment X509v3",
				"Extended Key Usage: TLS Web Client Authentication X509v3"},
		},
		"a kubelet's server": {
			key:      []string{"-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"},
			subject:  "/O=system:nodes/CN=system:node:n1",
			names:    "DNS:n1,IP:10.0.0.1,IP:fd00::1",
			usages:   []certificatesv1.KeyUsage{"digital signature", "server auth"},
			purposes: []string{"sslserver"},
			verify:   []string{"-verify_hostname", "n1", "-verify_ip", "fd00::1"},
			texts: []string{"Key Usage: critical Digital Signature X509v3", "Extended Key Usage: TLS Web Server Authentication X509v3",
				"DNS:n1, IP Address:10.0.0.1, IP Address:FD00:0:0:0:0:0:0:1"},
		},
		"somebody's client": {
			key:      []string{"-newkey", "ed25519"},
			subject:  "/O=people/O=Ä/CN=somebody",
			usages:   []certificatesv1.KeyUsage{"client auth"},
			purposes: []string{"sslclient"},
			texts:    []string{"Extended Key Usage: TLS Web Client Authentication X509v3"},
		},
		"mail": {
			key:      []string{"-newkey", "rsa:2048"},
			subject:  "/CN=somebody",
			names:    "email:a@example.com,URI:spiffe://a/b",
			usages:   []certificatesv1.KeyUsage{"signing", "content commitment", "key encipherment", "s/mime"},
			purposes: []string{"smimesign", "smimeencrypt"},
			texts:    []string{"Key Usage: critical Digital Signature, Non Repudiation, Key Encipherment X509v3", "email:a@example.com, URI:spiffe://a/b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOpenSSL(t)
			ca := certificates.New(t, "ca", nil)
			o.write(t, "ca.crt", ca.CertPEM)
			arguments := append([]string{"req", "-new", "-nodes", "-utf8", "-keyout", "key", "-out", "csr", "-subj", test.subject}, test.key...)
			if test.names != "" {
				arguments = append(arguments, "-addext", "subjectAltName="+test.names)
			}
			arguments = append(arguments, "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign")
			o.must(t, arguments...)
			o.write(t, "crt", signFile(t, ca, filepath.Join(o.dir, "csr"), test.usages))

			for _, purpose := range []string{"sslclient", "sslserver", "smimesign", "smimeencrypt", "timestampsign"} {
				verify := append([]string{"verify", "-x509_strict", "-check_ss_sig", "-CAfile", "ca.crt", "-purpose", purpose}, test.verify...)
				_, err := o.run(t.Context(), append(verify, "crt")...)
				if good := strings.Contains(" "+strings.Join(test.purposes, " ")+" ", " "+purpose+" "); good != (err == nil) {
					t.Errorf("%s: %v, want it to be accepted: %t", purpose, err, good)
				}
			}
			text := strings.Join(strings.Fields(o.must(t, "x509", "-in", "crt", "-noout", "-text")), " ")
			for _, want := range append(test.texts, "Basic Constraints: critical CA:FALSE", "Version: 3 (0x2)", "Authority Key Identifier:") {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in: %s", want, text)
				}
			}
			for _, not := range []string{"CA:TRUE", "Certificate Sign", "Subject Key Identifier"} {
				if strings.Contains(text, not) {
					t.Errorf("%q in: %s", not, text)
				}
			}
			// Its key is that of the request.
			if got, want := o.must(t, "x509", "-in", "crt", "-noout", "-pubkey"), o.must(t, "pkey", "-in", "key", "-pubout"); got != want {
				t.Errorf("the public key is %s, want %s", got, want)
			}
			// Nobody else vouches for it.
			o.write(t, "other.crt", certificates.New(t, "ca", nil).CertPEM)
			if output, err := o.run(t.Context(), "verify", "-CAfile", "other.crt", "crt"); err == nil {
				t.Errorf("another CA of the same name vouches for it: %s", output)
			}
		})
	}
}

// signFile signs the request in a file for an hour.
func signFile(t *testing.T, ca *certificates.Authority, path string, wanted []certificatesv1.KeyUsage) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	request, err := csrpolicy.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := request.CheckSignature(); err != nil {
		t.Fatal(err)
	}
	usages, err := UsagesOf(wanted)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := Sign(ca.Certificate, ca.Key, request, usages, time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// A certificate ends with its CA, if that is sooner.
func TestOpenSSLSeesTheEndOfTheCA(t *testing.T) {
	t.Parallel()
	o := newOpenSSL(t)
	end := time.Now().Add(30 * time.Minute).UTC().Truncate(time.Second)
	ca := certificates.New(t, "ca", func(c *x509.Certificate) { c.NotAfter = end })
	o.must(t, "req", "-new", "-nodes", "-newkey", "ed25519", "-keyout", "key", "-out", "csr", "-subj", "/CN=somebody")
	o.write(t, "crt", signFile(t, ca, filepath.Join(o.dir, "csr"), []certificatesv1.KeyUsage{"client auth"}))
	want := "notAfter=" + end.Format("Jan _2 15:04:05 2006 GMT")
	if got := strings.TrimSpace(o.must(t, "x509", "-in", "crt", "-noout", "-enddate")); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
