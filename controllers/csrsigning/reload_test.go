package csrsigning

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/csrpolicy"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// TestReloadsAtAnyMomentSignNothingTwice makes 100 good requests for each
// signer, and others that must not be signed, while the controller restarts.
func TestReloadsAtAnyMomentSignNothingTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.start()
	stop := controller.Reload(uint64(time.Now().UnixNano()), 50, 10)
	const each = 100
	good := map[string]bool{}
	wrong, untouched := map[string]bool{}, map[string]bool{}
	names := make(chan func(), each)
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for note := range names {
			note()
		}
	}()
	note := func(in map[string]bool, name string) { names <- func() { in[name] = true } }
	var group errgroup.Group
	group.SetLimit(6)
	for _, signerName := range []string{serving, nodes, apiClient} {
		for i := range each {
			group.Go(func() error {
				note(good, w.approved(signerName))
				if i%10 > 0 {
					return nil
				}
				note(wrong, w.approved(signerName, withUsages("code signing")))
				note(untouched, w.create(signerName))
				denied := w.created(signerName)
				w.decide(denied, certificatesv1.CertificateDenied)
				note(untouched, denied.Name)
				note(untouched, w.approved("example.com/x"))
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	close(names)
	<-collected
	stop()

	var all *certificatesv1.CertificateSigningRequestList
	harness.Eventually(t, within, "end of all requests", func(ctx context.Context) (err error) {
		all, err = w.Admin.CertificatesV1().CertificateSigningRequests().List(ctx, metav1.ListOptions{LabelSelector: "test=" + w.label})
		if err != nil {
			return err
		}
		for i := range all.Items {
			if csr := &all.Items[i]; pendingIn(csr) && !untouched[csr.Name] {
				return fmt.Errorf("%s waits", csr.Name)
			}
		}
		return nil
	})
	if len(all.Items) != len(good)+len(wrong)+len(untouched) || len(good) != 3*each {
		t.Fatalf("%d requests, of which %d are good", len(all.Items), len(good))
	}
	for i := range all.Items {
		csr := &all.Items[i]
		if err := w.ended(csr, good[csr.Name], wrong[csr.Name]); err != nil {
			t.Errorf("%s of %s: %v", csr.Name, csr.Spec.SignerName, err)
		}
	}
	done := map[string]int{}
	for _, r := range w.Writes(requests.GroupResource()) {
		if r.Verb != "update" || r.Subresource != "status" || untouched[r.Name] {
			t.Errorf("unexpected write: %+v", r)
		}
		if r.Code == http.StatusOK {
			done[r.Name]++
		}
	}
	for name, count := range done {
		if count != 1 {
			t.Errorf("%s was written to %d times", name, count)
		}
	}
}

// ended tells what is wrong with the end of a request.
func (w *world) ended(csr *certificatesv1.CertificateSigningRequest, good, wrong bool) error {
	signed := len(csr.Status.Certificate) > 0
	switch {
	case signed != good:
		return fmt.Errorf("signed: %t", signed)
	case csrpolicy.Failed(csr) != wrong:
		return fmt.Errorf("conditions: %+v", csr.Status.Conditions)
	case !good:
		return nil
	}
	certificate := certificates.Parse(w.t, csr.Status.Certificate)
	usage := x509.ExtKeyUsageClientAuth
	if csr.Spec.SignerName == serving {
		usage = x509.ExtKeyUsageServerAuth
	}
	if len(certificate.ExtKeyUsage) != 1 {
		return errors.New("more than one extended usage")
	}
	return w.ca.Verify(certificate, time.Now(), usage)
}
