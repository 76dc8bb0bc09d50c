package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The files of a pod's service account.
const (
	podTokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path, not a token
	podCAFile    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// credentials are all that a connection to the API server needs. Files were
// read when they were loaded, so that a file that is being replaced harms nobody.
type credentials struct {
	server *url.URL
	config *rest.Config
	// proxyURL of the kubeconfig; empty means the environment's.
	proxyURL string
}

// loadCredentials reads a kubeconfig, or the pod's service account when its
// path is empty, and the files that it refers to. The files are returned even
// with an error: the one that is missing may appear.
func loadCredentials(kubeconfig string) (*credentials, []string, error) {
	c := &credentials{}
	files := []string{podCAFile, podTokenFile}
	var err error
	if kubeconfig == "" {
		err = c.fromPod()
	} else {
		files, err = c.fromKubeconfig(kubeconfig)
	}
	if err != nil {
		return nil, files, err
	}
	if c.server, _, err = rest.DefaultServerUrlFor(c.config); err != nil {
		return nil, files, fmt.Errorf("%s: server: %w; give its URL", source(kubeconfig), err)
	}
	if err := c.readFiles(source(kubeconfig)); err != nil {
		return nil, files, err
	}
	return c, files, nil
}

func source(kubeconfig string) string {
	if kubeconfig == "" {
		return "the pod's service account"
	}
	return "kubeconfig " + kubeconfig
}

func (c *credentials) fromPod() error {
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return errors.New("no kubeconfig is set, and this process does not run in a pod: set cluster.kubeconfig")
	}
	if err != nil {
		return fmt.Errorf("the pod's service account: %w; let the pod mount its token, or set cluster.kubeconfig", err)
	}
	if config.CAFile == "" { // it could not be read
		return fmt.Errorf("the pod's service account: %s has no certificate authority; "+
			"let the pod mount it, or set cluster.kubeconfig", podCAFile)
	}
	c.config = config
	return nil
}

func (c *credentials) fromKubeconfig(path string) ([]string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	files := []string{path}
	kubeconfig, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return files, fmt.Errorf("kubeconfig %s: %w; write a valid one", path, err)
	}
	if err := clientcmd.ResolveLocalPaths(kubeconfig); err != nil {
		return files, fmt.Errorf("kubeconfig %s: %w", path, err)
	}
	if current := kubeconfig.Contexts[kubeconfig.CurrentContext]; current != nil {
		if cluster := kubeconfig.Clusters[current.Cluster]; cluster != nil {
			c.proxyURL = cluster.ProxyURL
			files = append(files, cluster.CertificateAuthority)
		}
		if user := kubeconfig.AuthInfos[current.AuthInfo]; user != nil {
			files = append(files, user.ClientCertificate, user.ClientKey, user.TokenFile)
		}
	}
	files = slices.DeleteFunc(files, func(file string) bool { return file == "" })
	overrides := &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{}}
	c.config, err = clientcmd.NewNonInteractiveClientConfig(*kubeconfig, "", overrides, nil).ClientConfig()
	if err != nil {
		return files, fmt.Errorf("kubeconfig %s: %w; check its current-context and what that names", path, err)
	}
	return files, nil
}

// readFiles takes the contents of the files into config and checks them.
func (c *credentials) readFiles(source string) error {
	config := c.config
	if err := rest.LoadTLSFiles(config); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	if config.BearerTokenFile != "" {
		token, err := os.ReadFile(config.BearerTokenFile)
		if err != nil {
			return fmt.Errorf("%s: token: %w", source, err)
		}
		if len(token) == 0 {
			return fmt.Errorf("%s: token file %s is empty; write a token into it", source, config.BearerTokenFile)
		}
		config.BearerToken = string(token)
	}
	if len(config.CAData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(config.CAData) {
		return fmt.Errorf("%s: certificate authority %s holds no certificate; write PEM certificates there",
			source, place(config.CAFile))
	}
	if config.CAFile != "" && len(config.CAData) == 0 {
		return fmt.Errorf("%s: certificate authority %s is empty; write PEM certificates there", source, config.CAFile)
	}
	if len(config.CertData) > 0 || len(config.KeyData) > 0 || config.CertFile != "" || config.KeyFile != "" {
		if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
			return fmt.Errorf("%s: client certificate %s with key %s: %w; write a matching pair as PEM",
				source, place(config.CertFile), place(config.KeyFile), err)
		}
	}
	return nil
}

func place(file string) string {
	if file == "" {
		return "in the kubeconfig"
	}
	return file
}

// anonymous returns the same connection without an identity.
func (c *credentials) anonymous() *credentials {
	return &credentials{server: c.server, config: rest.AnonymousClientConfig(c.config), proxyURL: c.proxyURL}
}

// sameConnection tells whether connections made with c are good for d: all is
// equal but the content of a token file, which each request carries anew.
func (c *credentials) sameConnection(d *credentials) bool {
	return c.server.String() == d.server.String() && c.proxyURL == d.proxyURL && reflect.DeepEqual(c.comparable(), d.comparable())
}

func (c *credentials) comparable() rest.Config {
	config := *c.config
	config.Proxy, config.AuthConfigPersister = nil, nil // functions; proxyURL is compared
	if config.BearerTokenFile != "" {
		config.BearerToken = ""
	}
	return config
}
