// Package servingtrustbundle publishes the CA bundle that verifies the API
// server as the one ClusterTrustBundle of its signer, so that pods can project
// it by the signer's name. It follows the bundle's file.
package servingtrustbundle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/keymaterial"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/notfound"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/syncmetrics"
	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
	"github.com/wheelhouse-project/wheelhouse/runtime/informers"
	"github.com/wheelhouse-project/wheelhouse/runtime/work"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// signerName is that of the API server's serving certificate.
const signerName = "kubernetes.io/kube-apiserver-serving"

// nameBytes of the digest are in the name of a bundle.
const nameBytes = 12

var bundles = certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles")

// Descriptor describes kube-apiserver-serving-clustertrustbundle-publisher-controller.
func Descriptor() controller.Descriptor {
	return controller.Descriptor{
		Section:        schema.KubeAPIServerServingClusterTrustBundlePublisherControllerSection(),
		ServiceAccount: "kube-apiserver-serving-clustertrustbundle-publisher",
		Requires:       []apischema.GroupVersionResource{bundles},
		FeatureGates:   []string{"ClusterTrustBundle"},
		Unavailable: func(section schema.Section, serverCA []byte) string {
			publisher, ok := section.(*schema.KubeAPIServerServingClusterTrustBundlePublisherController)
			if !ok {
				return fmt.Sprintf("its section is a %T", section)
			}
			return keymaterial.NoRootCA(publisher.RootCAFile, serverCA)
		},
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups:     []string{certificatesv1.GroupName},
				Resources:     []string{"signers"},
				ResourceNames: []string{signerName},
				Verbs:         []string{"attest"},
			},
			{
				APIGroups: []string{certificatesv1.GroupName},
				Resources: []string{"clustertrustbundles"},
				Verbs:     []string{"create", "update", "delete"},
			},
		},
		New: controller.NewFor(New),
	}
}

// publisher reconciles all bundles of the signer together: there is one key.
type publisher struct {
	client  kubernetes.Interface
	logger  *slog.Logger
	bundles certificateslisters.ClusterTrustBundleLister
	queue   *work.Queue[string]
	ca      *keymaterial.Source[*keymaterial.Bundle]
}

// New makes the controller.
func New(env controller.Env, section *schema.KubeAPIServerServingClusterTrustBundlePublisherController) (*controller.Controller, error) {
	informer, err := env.Informers.SelectedInformer(bundles, informers.Selection{FieldSelector: "spec.signerName=" + signerName})
	if err != nil {
		return nil, fmt.Errorf("watch cluster trust bundles: %w", err)
	}
	syncs, err := syncmetrics.New(env, syncmetrics.Options{
		Prefix: "clustertrustbundle_publisher",
		What:   "ClusterTrustBundles by their publisher",
	})
	if err != nil {
		return nil, err
	}
	c := &publisher{
		client:  env.Client,
		logger:  env.Logger,
		bundles: certificateslisters.NewClusterTrustBundleLister(informer.Indexer()),
	}
	c.queue = work.NewQueue(env.Work, work.Options[string]{
		Name:         "ca_cert_publisher_cluster_trust_bundles",
		Reconcile:    syncmetrics.Measure(syncs, c.reconcile),
		FixedWorkers: 1,
	})
	if c.ca, err = keymaterial.NewRootCA(env, section.RootCAFile, c.look); err != nil {
		return nil, err
	}
	look := func(any) { c.look() }
	if err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: look,
	}); err != nil {
		return nil, fmt.Errorf("watch cluster trust bundles: %w", err)
	}
	c.look()
	return &controller.Controller{Handler: keymaterial.Report{c.ca}, Runners: c.ca.Runners()}, nil
}

// look at the bundles of the signer.
func (c *publisher) look() { c.queue.Add(signerName) }

// nameOf the bundle with a text: another text has another name, so that a new
// bundle is there before the old one goes.
func nameOf(text string) string {
	digest := sha256.Sum256([]byte(text))
	return strings.ReplaceAll(signerName, "/", ":") + ":" + hex.EncodeToString(digest[:nameBytes])
}

// reconcile makes the one bundle of the signer be there, and then deletes all others.
func (c *publisher) reconcile(ctx context.Context, _ string) (work.Result, error) {
	text := c.ca.Current().PEM
	name := nameOf(text)
	if published, err := c.publish(ctx, name, text); err != nil || !published {
		return work.Result{}, err
	}
	all, err := c.bundles.List(labels.Everything())
	if err != nil {
		return work.Result{}, fmt.Errorf("list cluster trust bundles: %w", err)
	}
	var errs []error
	for _, bundle := range all {
		if bundle.Spec.SignerName == signerName && bundle.Name != name && bundle.DeletionTimestamp == nil {
			errs = append(errs, c.delete(ctx, bundle))
		}
	}
	return work.Result{}, errors.Join(errs...)
}

// publish tells whether the bundle is there. When it is not, without an error,
// the event of somebody else's write is under way.
func (c *publisher) publish(ctx context.Context, name, text string) (bool, error) {
	cached, err := c.bundles.Get(name)
	switch {
	case apierrors.IsNotFound(err):
		return c.create(ctx, name, text)
	case err != nil:
		return false, fmt.Errorf("look up cluster trust bundle %s: %w", name, err)
	case cached.Spec.TrustBundle == text:
		return true, nil
	}
	bundle := cached.DeepCopy()
	bundle.Spec.TrustBundle = text
	_, err = c.client.CertificatesV1().ClusterTrustBundles().Update(ctx, bundle, metav1.UpdateOptions{})
	if notfound.ByAPIServer(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("update cluster trust bundle %s: %w", name, err)
	}
	return true, nil
}

func (c *publisher) create(ctx context.Context, name, text string) (bool, error) {
	bundle := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: signerName, TrustBundle: text},
	}
	_, err := c.client.CertificatesV1().ClusterTrustBundles().Create(ctx, bundle, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create cluster trust bundle %s: %w", name, err)
	}
	return true, nil
}

func (c *publisher) delete(ctx context.Context, bundle *certificatesv1.ClusterTrustBundle) error {
	err := c.client.CertificatesV1().ClusterTrustBundles().Delete(ctx, bundle.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &bundle.UID},
	})
	if notfound.ByAPIServer(err) || apierrors.IsConflict(err) {
		return nil // it is gone; if another one has its name, its event is under way
	}
	if err != nil {
		return fmt.Errorf("delete cluster trust bundle %s: %w", bundle.Name, err)
	}
	c.logger.Info("Deleted a cluster trust bundle of the API server's signer that is not its own", "name", bundle.Name)
	return nil
}
