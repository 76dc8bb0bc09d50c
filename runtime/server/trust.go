package server

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	certutil "k8s.io/client-go/util/cert"
)

// The API server publishes in this ConfigMap which CAs it trusts.
const (
	publishedNamespace = metav1.NamespaceSystem
	publishedName      = "extension-apiserver-authentication"
	publishedSource    = "ConfigMap " + publishedNamespace + "/" + publishedName
)

// bundle is a set of CA certificates.
type bundle struct {
	source   string
	pem      []byte
	options  x509.VerifyOptions
	certs    []*x509.Certificate
	loadedAt time.Time
}

func newBundle(source string, pem []byte) (*bundle, error) {
	certs, err := certutil.ParseCertsPEM(pem)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	for _, cert := range certs {
		roots.AddCert(cert)
	}
	return &bundle{
		source:   source,
		pem:      pem,
		certs:    certs,
		loadedAt: time.Now(),
		options:  x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
	}, nil
}

// requestHeader says whose word about a user is taken, and how it is given.
type requestHeader struct {
	ca                                                 *bundle
	usernames, uids, groups, extraPrefixes, allowedCNs []string
}

// trust is who vouches for a caller: the CA of client certificates, from a
// file or as published by the API server, and the front proxies that the API
// server names. Until it is known nobody is trusted.
type trust struct {
	log    *slog.Logger
	client kubernetes.Interface
	// onChange is called after every change.
	onChange func()

	mu        sync.RWMutex
	file      *bundle
	published *bundle
	header    requestHeader
	lastError string
}

func newTrust(log *slog.Logger, client kubernetes.Interface) *trust {
	return &trust{log: log, client: client, onChange: func() {}}
}

// useFile prefers file to what is published; nil goes back to that.
func (t *trust) useFile(file *bundle) {
	t.mu.Lock()
	t.file, t.lastError = file, ""
	t.mu.Unlock()
	t.onChange()
}

// reject keeps what is used, and why something newer is not.
func (t *trust) reject(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastError = err.Error()
}

// run follows what the API server publishes until ctx ends, from whenever it
// can be reached and the ConfigMap is there.
func (t *trust) run(ctx context.Context) {
	if t.client == nil {
		<-ctx.Done()
		return
	}
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, publishedName).String()
	configMaps := t.client.CoreV1().ConfigMaps(publishedNamespace)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				options.FieldSelector = one
				return configMaps.List(ctx, options)
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				options.FieldSelector = one
				return configMaps.Watch(ctx, options)
			},
		}, t.client),
		ObjectType: &corev1.ConfigMap{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { t.publish(obj) },
			UpdateFunc: func(_, obj any) { t.publish(obj) },
			DeleteFunc: func(any) { t.publish(&corev1.ConfigMap{}) },
		},
	})
	informer.RunWithContext(ctx)
}

// publish takes the content of the ConfigMap. A part that cannot be read stays
// as it was; a part that is not there trusts nobody.
func (t *trust) publish(obj any) {
	configMap, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return
	}
	clientCA, err := publishedBundle(configMap, "client-ca-file")
	header, headerErr := publishedHeader(configMap)
	t.mu.Lock()
	if err == nil {
		t.published = clientCA
	}
	if headerErr == nil {
		t.header = header
	}
	if t.file == nil {
		t.lastError = ""
		if err != nil {
			t.lastError = err.Error()
		}
	}
	t.mu.Unlock()
	if err := errors.Join(err, headerErr); err != nil {
		t.log.Error("Published client CAs cannot be used, what was loaded before stays in use", "err", err)
	} else {
		t.log.Log(context.Background(), verbosity(2), "Loaded published client CAs", "source", publishedSource,
			"clientCA", clientCA != nil, "requestHeader", header.ca != nil)
	}
	t.onChange()
}

// publishedBundle is nil without an error when key is not there.
func publishedBundle(configMap *corev1.ConfigMap, key string) (*bundle, error) {
	pem := configMap.Data[key]
	if pem == "" {
		return nil, nil
	}
	b, err := newBundle(publishedSource, []byte(pem))
	if err != nil {
		return nil, fmt.Errorf("%s, key %s: %w", publishedSource, key, err)
	}
	return b, nil
}

func publishedHeader(configMap *corev1.ConfigMap) (requestHeader, error) {
	ca, err := publishedBundle(configMap, "requestheader-client-ca-file")
	header := requestHeader{ca: ca}
	errs := []error{err}
	for key, into := range map[string]*[]string{
		"requestheader-username-headers":     &header.usernames,
		"requestheader-uid-headers":          &header.uids,
		"requestheader-group-headers":        &header.groups,
		"requestheader-extra-headers-prefix": &header.extraPrefixes,
		"requestheader-allowed-names":        &header.allowedCNs,
	} {
		if value := configMap.Data[key]; value != "" {
			if err := json.Unmarshal([]byte(value), into); err != nil {
				errs = append(errs, fmt.Errorf("%s, key %s: %w", publishedSource, key, err))
			}
		}
	}
	return header, errors.Join(errs...)
}

// clientCA verifies client certificates; nil when nobody may have one.
func (t *trust) clientCA() *bundle {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.file != nil {
		return t.file
	}
	return t.published
}

func (t *trust) requestHeader() requestHeader {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.header
}

// acceptable are the issuers that a client is told about, so that it offers a
// certificate that can be verified; nil when none is known.
func (t *trust) acceptable() *x509.CertPool {
	pool := x509.NewCertPool()
	known := false
	for _, b := range []*bundle{t.clientCA(), t.requestHeader().ca} {
		if b != nil {
			known = true
			for _, cert := range b.certs {
				pool.AddCert(cert)
			}
		}
	}
	if !known {
		return nil
	}
	return pool
}

func (t *trust) state() CAStatus {
	ca := t.clientCA()
	t.mu.RLock()
	defer t.mu.RUnlock()
	status := CAStatus{LastError: t.lastError}
	if ca != nil {
		status.Source, status.LoadedAt = ca.source, ca.loadedAt
	}
	return status
}

// caProvider is a bundle that changes, as the authenticators want it. They ask
// anew for each request, so there is nobody to notify.
type caProvider struct {
	name    string
	current func() *bundle
}

var _ dynamiccertificates.CAContentProvider = caProvider{}

func (p caProvider) Name() string                             { return p.name }
func (p caProvider) AddListener(dynamiccertificates.Listener) {}

func (p caProvider) CurrentCABundleContent() []byte {
	if b := p.current(); b != nil {
		return b.pem
	}
	return nil
}

func (p caProvider) VerifyOptions() (x509.VerifyOptions, bool) {
	if b := p.current(); b != nil {
		return b.options, true
	}
	return x509.VerifyOptions{}, false
}
