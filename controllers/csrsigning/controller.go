// Package csrsigning signs approved CertificateSigningRequests of the four
// built-in signers with the CAs that it is given, limited to each signer's
// rules and to the configured duration. It follows the CAs' files.
package csrsigning

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/keymaterial"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

var requests = certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests")

// Descriptor describes certificatesigningrequest-signing-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.CertificateSigningRequestSigningControllerSection(),
		ServiceAccount: "certificate-controller",
		Requires:       []apischema.GroupVersionResource{requests},
		LiveFields:     []string{"duration"},
		Unavailable: func(section schema.Section, _ []byte) string {
			signing, ok := section.(*schema.CertificateSigningRequestSigningController)
			if !ok {
				return fmt.Sprintf("its section is a %T", section)
			}
			if len(authorities(signing)) == 0 {
				return "it has no CA: set certFile and keyFile, or those of single signers"
			}
			return ""
		},
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups: []string{certificatesv1.GroupName},
				Resources: []string{"certificatesigningrequests/status"},
				Verbs:     []string{"update"},
			},
			{
				APIGroups: []string{certificatesv1.GroupName},
				Resources: []string{"signers"},
				ResourceNames: []string{
					certificatesv1.KubeletServingSignerName,
					certificatesv1.KubeAPIServerClientKubeletSignerName,
					certificatesv1.KubeAPIServerClientSignerName,
					legacyUnknownSigner,
				},
				Verbs: []string{"sign"},
			},
		},
		New: controller.NewFor(New),
	}
}

// signing is what the signers share.
type signing struct {
	client   kubernetes.Interface
	logger   *slog.Logger
	clock    clock.PassiveClock
	requests certificateslisters.CertificateSigningRequestLister
	// duration is the longest and the default life of a certificate, a time.Duration.
	duration atomic.Int64
	// signers by name.
	signers map[string]*signer
}

// New makes the controller.
func New(env controller.Env, section *schema.CertificateSigningRequestSigningController) (*controller.Controller, error) {
	informer, err := env.Informers.Informer(requests)
	if err != nil {
		return nil, fmt.Errorf("watch certificate signing requests: %w", err)
	}
	c := &signing{
		client:   env.Client,
		logger:   env.Logger,
		clock:    env.Clock,
		requests: certificateslisters.NewCertificateSigningRequestLister(informer.Indexer()),
		signers:  map[string]*signer{},
	}
	c.setDuration(section)
	made := &controller.Controller{ApplyLive: c.applyLive}
	var report keymaterial.Report
	for _, authority := range authorities(section) {
		var signers []*signer
		for _, policy := range authority.policies {
			s := newSigner(env, c, policy)
			signers = append(signers, s)
			c.signers[policy.signerName] = s
		}
		ca, err := keymaterial.NewSigningPair(env, authority.name, authority.files.CertFile, authority.files.KeyFile, func() {
			for _, s := range signers {
				s.signPending()
			}
		})
		if err != nil {
			return nil, err
		}
		for _, s := range signers {
			s.ca = ca
		}
		report = append(report, ca)
		made.Runners = append(made.Runners, ca.Runners()...)
	}
	made.Handler = report
	if err := informer.AddEventHandler(c.handler()); err != nil {
		return nil, fmt.Errorf("watch certificate signing requests: %w", err)
	}
	return made, nil
}

func (c *signing) setDuration(section *schema.CertificateSigningRequestSigningController) {
	c.duration.Store(int64(section.Duration.Duration))
}

func (c *signing) applyLive(section schema.Section) {
	if s, ok := section.(*schema.CertificateSigningRequestSigningController); ok {
		c.setDuration(s)
	}
}

func (c *signing) longest() time.Duration { return time.Duration(c.duration.Load()) }

// handler hands each request to its own signer; those of others are nobody's business here.
func (c *signing) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			if csr, ok := obj.(*certificatesv1.CertificateSigningRequest); ok && pending(csr) {
				if s := c.signers[csr.Spec.SignerName]; s != nil {
					s.queue.AddEvent(csr.Name, isInInitialList)
				}
			}
		},
		UpdateFunc: func(_, obj any) {
			if csr, ok := obj.(*certificatesv1.CertificateSigningRequest); ok && pending(csr) {
				if s := c.signers[csr.Spec.SignerName]; s != nil {
					s.queue.Add(csr.Name)
				}
			}
		},
	}
}

// authority is a CA with the signers that use it.
type authority struct {
	name     string
	files    schema.Signer
	policies []policy
}

// authorities that the section configures; a signer without any does not run.
func authorities(section *schema.CertificateSigningRequestSigningController) []authority {
	if all := (schema.Signer{CertFile: section.CertFile, KeyFile: section.KeyFile}); all != (schema.Signer{}) {
		return []authority{{"cluster signing CA", all, []policy{
			kubeletServing(), kubeletClient(), apiServerClient(), legacyUnknown(),
		}}}
	}
	var configured []authority
	for _, one := range []struct {
		files  schema.Signer
		policy policy
	}{
		{section.KubeletServing, kubeletServing()},
		{section.KubeletClient, kubeletClient()},
		{section.KubeAPIServerClient, apiServerClient()},
		{section.LegacyUnknown, legacyUnknown()},
	} {
		if one.files != (schema.Signer{}) {
			configured = append(configured, authority{"CA of " + one.policy.signerName, one.files, []policy{one.policy}})
		}
	}
	return configured
}
