package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/client-go/kubernetes"
)

const (
	// reviewTimeout bounds one question to the API server.
	reviewTimeout = 10 * time.Second
	// reviewCache is how long an answer of the API server holds.
	reviewCache = 10 * time.Second
)

// gate lets nobody pass whom the API server does not know and allow. It has no
// answer of its own when the API server has none.
type gate struct {
	log   *slog.Logger
	authn authenticator.Request
	authz authorizer.Authorizer
	// open decides about paths that need neither.
	open atomic.Pointer[authorizer.Authorizer]
}

func newGate(log *slog.Logger, client kubernetes.Interface, t *trust) (*gate, error) {
	retry := &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
	header := func(of func(requestHeader) []string) headerrequest.StringSliceProvider {
		return headerrequest.StringSliceProviderFunc(func() []string { return of(t.requestHeader()) })
	}
	authnConfig := authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewTimeout:           reviewTimeout,
		WebhookRetryBackoff:                retry,
		CacheTTL:                           reviewCache,
		ClientCertificateCAContentProvider: caProvider{name: "client-ca", current: t.clientCA},
		RequestHeaderConfig: &authenticatorfactory.RequestHeaderConfig{
			CAContentProvider:   caProvider{name: "request-header-ca", current: func() *bundle { return t.requestHeader().ca }},
			UsernameHeaders:     header(func(h requestHeader) []string { return h.usernames }),
			UIDHeaders:          header(func(h requestHeader) []string { return h.uids }),
			GroupHeaders:        header(func(h requestHeader) []string { return h.groups }),
			ExtraHeaderPrefixes: header(func(h requestHeader) []string { return h.extraPrefixes }),
			AllowedClientNames:  header(func(h requestHeader) []string { return h.allowedCNs }),
		},
	}
	chain := []union.NamedAuthorizer{{
		AuthorizerName: "privileged",
		Authorizer:     authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup),
	}}
	if client != nil {
		authnConfig.TokenAccessReviewClient = client.AuthenticationV1()
		delegated, err := authorizerfactory.DelegatingAuthorizerConfig{
			SubjectAccessReviewClient: client.AuthorizationV1(),
			AllowCacheTTL:             reviewCache,
			DenyCacheTTL:              reviewCache,
			WebhookRetryBackoff:       retry,
		}.New()
		if err != nil {
			return nil, err
		}
		chain = append(chain, union.NamedAuthorizer{AuthorizerName: "cluster", Authorizer: delegated})
	}
	authz, err := union.New(chain...)
	if err != nil {
		return nil, err
	}
	authn, _, err := authnConfig.New()
	if err != nil {
		return nil, err
	}
	g := &gate{log: log, authn: authn, authz: authz}
	if err := g.setOpenPaths(nil); err != nil {
		return nil, err
	}
	return g, nil
}

// setOpenPaths takes the paths that are open to everybody; a trailing * stands
// for any ending. A health path opens the checks below it as well.
func (g *gate) setOpenPaths(paths []string) error {
	all := append([]string(nil), paths...)
	for _, p := range paths {
		if isHealth(p) {
			all = append(all, p+"/*")
		}
	}
	open, err := path.NewAuthorizer(all)
	if err != nil {
		return fmt.Errorf("server.authorization.alwaysAllowPaths: %w", err)
	}
	g.open.Store(&open)
	return nil
}

// protect lets through to next what is open, and who may.
func (g *gate) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attributes := authorizer.AttributesRecord{Verb: strings.ToLower(r.Method), Path: r.URL.Path}
		if decision, _, err := (*g.open.Load()).Authorize(r.Context(), attributes); err == nil && decision == authorizer.DecisionAllow {
			next.ServeHTTP(w, r)
			return
		}
		caller, ok, err := g.authn.AuthenticateRequest(r)
		if err != nil {
			g.log.Log(r.Context(), verbosity(1), "Caller is not authenticated", "path", r.URL.Path, "remote", r.RemoteAddr, "err", err)
		}
		if err != nil || !ok {
			// Closes HTTP/2 connections of callers who are not known.
			w.Header().Set("Connection", "close")
			refuse(w, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		attributes.User = caller.User
		decision, reason, err := g.authz.Authorize(r.Context(), attributes)
		switch {
		case decision == authorizer.DecisionAllow:
			r.Header.Del("Authorization")
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller.User.GetName())))
		case err != nil:
			g.log.Warn("Caller cannot be authorized", "user", caller.User.GetName(), "path", r.URL.Path, "err", err)
			refuse(w, apierrors.NewInternalError(fmt.Errorf("authorization of this request failed: the API server gave no answer")))
		default:
			refuse(w, forbidden(attributes, reason))
		}
	})
}

// callerKey is the context key of the caller's user name.
type callerKey struct{}

func forbidden(a authorizer.AttributesRecord, reason string) *apierrors.StatusError {
	message := fmt.Sprintf("User %q cannot %s path %q", a.User.GetName(), a.Verb, a.Path)
	if reason != "" {
		message += ": " + reason
	}
	err := apierrors.NewForbidden(apischema.GroupResource{}, "", fmt.Errorf("%s", message))
	err.ErrStatus.Message = "forbidden: " + message
	return err
}

// refuse answers with a Status, as the API server does.
func refuse(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	writeJSON(w, int(status.Code), status)
}

// writeJSON sends value as one line without an end.
func writeJSON(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "encode the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The caller may have gone; nobody is left to tell.
	_, _ = w.Write(body)
}
