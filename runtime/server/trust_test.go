package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func published(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: publishedNamespace, Name: publishedName}, Data: data}
}

// What is published can appear later, change and go. What goes is not trusted
// any more; what cannot be read changes nothing.
func TestTrust_FollowsWhatIsPublished(t *testing.T) {
	client := fake.NewClientset()
	tr := newTrust(discard, client)
	changes := make(chan struct{}, 100)
	tr.onChange = func() { changes <- struct{}{} }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); tr.run(ctx) }()
	defer func() { cancel(); <-ended }()

	first, second, proxy := newAuthority(t, "first"), newAuthority(t, "second"), newAuthority(t, "proxy")
	configMaps := client.CoreV1().ConfigMaps(publishedNamespace)
	expect := func(what string, clientCA, header *authority, lastError string) {
		t.Helper()
		same := func(b *bundle, a *authority) bool {
			return b == nil && a == nil || b != nil && a != nil && b.certs[0].Equal(a.cert)
		}
		eventually(t, what, func() error {
			state := tr.state()
			if !same(tr.clientCA(), clientCA) || !same(tr.requestHeader().ca, header) || !strings.Contains(state.LastError, lastError) ||
				lastError == "" && state.LastError != "" {
				return fmt.Errorf("trusts %v and %v, last error %q", tr.clientCA(), tr.requestHeader().ca, state.LastError)
			}
			return nil
		})
	}
	expect("nothing is published", nil, nil, "")
	if tr.acceptable() != nil {
		t.Error("clients are told of issuers")
	}

	full := map[string]string{
		"client-ca-file":                     string(first.pem()),
		"requestheader-client-ca-file":       string(proxy.pem()),
		"requestheader-username-headers":     `["X-Remote-User","X-User"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
		"requestheader-allowed-names":        `["front-proxy"]`,
	}
	if _, err := configMaps.Create(t.Context(), published(full), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("it appears", first, proxy, "")
	header := tr.requestHeader()
	if fmt.Sprint(header.usernames, header.uids, header.groups, header.extraPrefixes, header.allowedCNs) !=
		"[X-Remote-User X-User] [] [X-Remote-Group] [X-Remote-Extra-] [front-proxy]" {
		t.Errorf("request header is %+v", header)
	}

	full["client-ca-file"] = string(second.pem())
	if _, err := configMaps.Update(t.Context(), published(full), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("it changes", second, proxy, "")

	full["client-ca-file"], full["requestheader-allowed-names"] = "not PEM", "not JSON"
	if _, err := configMaps.Update(t.Context(), published(full), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("it cannot be read", second, proxy, "key client-ca-file")
	if got := tr.requestHeader().allowedCNs; len(got) != 1 {
		t.Errorf("allowed names are %v", got)
	}

	delete(full, "client-ca-file")
	full["requestheader-allowed-names"] = `["front-proxy"]`
	if _, err := configMaps.Update(t.Context(), published(full), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("one key goes", nil, proxy, "")

	if err := configMaps.Delete(t.Context(), publishedName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("all goes", nil, nil, "")
}

func TestTrust_FileComesFirst(t *testing.T) {
	tr := newTrust(discard, nil)
	file, cluster := newAuthority(t, "file"), newAuthority(t, "cluster")
	tr.publish(published(map[string]string{"client-ca-file": string(cluster.pem())}))
	b, err := newBundle("ca.crt", file.pem())
	if err != nil {
		t.Fatal(err)
	}
	tr.useFile(b)
	if !tr.clientCA().certs[0].Equal(file.cert) || tr.state().Source != "ca.crt" {
		t.Error("the file is not used")
	}
	tr.reject(errors.New("bad file"))
	tr.publish(published(map[string]string{"client-ca-file": string(cluster.pem())}))
	if got := tr.state(); got.LastError != "bad file" || got.Source != "ca.crt" {
		t.Errorf("state is %+v", got)
	}
	tr.useFile(nil)
	if got := tr.state(); got.LastError != "" || got.Source != publishedSource {
		t.Errorf("state is %+v", got)
	}
}
