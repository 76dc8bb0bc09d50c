package csrapproving

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/certificates"
	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m, controlplane.Options{})) }

const (
	// within is ample on a busy machine.
	within = 2 * time.Minute

	selfMessage = "Auto approving self kubelet client certificate after SubjectAccessReview."
	nodeMessage = "Auto approving kubelet client certificate after SubjectAccessReview."
)

// world is an engine that sees the requests of one test only.
type world struct {
	*harness.Engine
	t     *testing.T
	label string
	key   *ecdsa.PrivateKey
	// group of all requesters, if not empty.
	group string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	label := rand.String(10)
	return &world{
		Engine: harness.New(t, controlplane.Shared(t), harness.Options{
			Scope: apiproxy.Scope{Selected: requests.GroupResource(), Selector: "test=" + label},
		}),
		t:     t,
		label: label,
		key:   certificates.NewKey(t),
	}
}

// user that nobody else has, who may create and read requests.
func (w *world) user(prefix string) string {
	w.t.Helper()
	user := prefix + w.label + rand.String(4)
	w.grant(user, rbacv1.PolicyRule{
		APIGroups: []string{requests.Group}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get"},
	})
	return user
}

// grant gives a user rights.
func (w *world) grant(user string, rules ...rbacv1.PolicyRule) {
	w.t.Helper()
	w.grantTo(rbacv1.UserKind, user, rules...)
}

// grantTo gives a user or a group rights.
func (w *world) grantTo(kind, name string, rules ...rbacv1.PolicyRule) {
	w.t.Helper()
	role, err := w.Admin.RbacV1().ClusterRoles().Create(w.t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	_, err = w.Admin.RbacV1().ClusterRoleBindings().Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

// permit gives a user a permission, selfnodeclient or nodeclient, and returns
// when the API server knows it.
func (w *world) permit(user, permission string) {
	w.t.Helper()
	w.grant(user, rbacv1.PolicyRule{
		APIGroups: []string{requests.Group}, Resources: []string{"certificatesigningrequests/" + permission}, Verbs: []string{"create"},
	})
	w.awaitRight(user, authorizationv1.ResourceAttributes{
		Group: requests.Group, Resource: requests.Resource, Subresource: permission, Verb: "create",
	})
}

func (w *world) awaitRight(user string, to authorizationv1.ResourceAttributes) {
	w.t.Helper()
	harness.Eventually(w.t, within, "right of "+user, func(ctx context.Context) error {
		review, err := w.Admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &to},
		}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			return errors.New("it is not allowed")
		}
		return err
	})
}

type change func(request *x509.CertificateRequest, spec *certificatesv1.CertificateSigningRequestSpec)

// create a request of user for the client certificate of a node, which is named as a user.
func (w *world) create(user, node string, changes ...change) string {
	w.t.Helper()
	request := &x509.CertificateRequest{Subject: pkix.Name{CommonName: node, Organization: []string{"system:nodes"}}}
	spec := certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages: []certificatesv1.KeyUsage{
			certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth,
		},
	}
	for _, change := range changes {
		change(request, &spec)
	}
	spec.Request = certificates.Request(w.t, request, w.key)
	groups := []string{"system:bootstrappers"}
	if w.group != "" {
		groups = append(groups, w.group)
	}
	client := harness.Client(w.t, controlplane.Shared(w.t).Config(user, groups...))
	name := ""
	harness.Eventually(w.t, within, "right to create requests", func(ctx context.Context) error {
		csr, err := client.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-", Labels: map[string]string{"test": w.label}},
			Spec:       spec,
		}, metav1.CreateOptions{})
		if err == nil {
			name = csr.Name
		}
		return err
	})
	return name
}

func (w *world) get(name string) *certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	csr, err := w.Admin.CertificatesV1().CertificateSigningRequests().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return csr
}

// approved waits for the controller's approval, with a message.
func (w *world) approved(name, message string) {
	w.t.Helper()
	harness.Eventually(w.t, within, "approval of "+name, func(ctx context.Context) error {
		csr, err := w.Admin.CertificatesV1().CertificateSigningRequests().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(csr.Status.Conditions) == 0 {
			return errors.New("it is undecided")
		}
		condition := csr.Status.Conditions[0]
		if len(csr.Status.Conditions) != 1 || condition.Type != certificatesv1.CertificateApproved || condition.Status != corev1.ConditionTrue ||
			condition.Reason != "AutoApproved" || condition.Message != message ||
			condition.LastUpdateTime.IsZero() || condition.LastTransitionTime.IsZero() {
			w.t.Fatalf("conditions of %s: %+v", name, csr.Status.Conditions)
		}
		return nil
	})
}

// settled returns when the controller has looked at what was created before.
func (w *world) settled() {
	w.t.Helper()
	user := w.user("system:node:")
	w.permit(user, "selfnodeclient")
	w.approved(w.create(user, user), selfMessage)
}

// reviews that the controller has asked for.
func (w *world) reviews() int {
	return len(w.Writes(apischema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}))
}

func (w *world) writes(name string) (writes []apiproxy.Request) {
	for _, r := range w.Writes(requests.GroupResource()) {
		if r.Name == name {
			writes = append(writes, r)
		}
	}
	return writes
}

func TestAcceptance01_ANodeRenewsItsOwnCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	user := w.user("system:node:")
	w.permit(user, "selfnodeclient")
	w.approved(w.create(user, user), selfMessage)
}

func TestAcceptance02_WithoutKeyEncipherment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	user := w.user("system:node:")
	w.permit(user, "selfnodeclient")
	w.approved(w.create(user, user, func(_ *x509.CertificateRequest, spec *certificatesv1.CertificateSigningRequestSpec) {
		spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}
	}), selfMessage)
}

func TestAcceptance03_ABootstrapUserAsksForANode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	user := w.user("boot-")
	w.permit(user, "nodeclient")
	w.approved(w.create(user, "system:node:n2"), nodeMessage)
}

// What a group of the requester may do, the requester may, as bootstrap tokens are used.
func TestAcceptance03_AGroupOfTheUserCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	w.group = "group-" + w.label
	w.grantTo(rbacv1.GroupKind, w.group, rbacv1.PolicyRule{
		APIGroups: []string{requests.Group}, Resources: []string{"certificatesigningrequests/nodeclient"}, Verbs: []string{"create"},
	})
	w.approved(w.create(w.user("boot-"), "system:node:n2"), nodeMessage)
}

func TestAllThatIsKnownOfTheRequesterIsReviewed(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	var asked authorizationv1.SubjectAccessReviewSpec
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, k8sruntime.Object, error) {
		create, ok := action.(clienttesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		review, ok := create.GetObject().(*authorizationv1.SubjectAccessReview)
		if !ok {
			return false, nil, nil
		}
		asked = review.Spec
		return true, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	allowed, err := (&approver{client: client}).allowed(t.Context(), &certificatesv1.CertificateSigningRequest{
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Username: "u", UID: "1", Groups: []string{"g", "h"}, Extra: map[string]certificatesv1.ExtraValue{"scope": {"a", "b"}, "other": {"c"}},
		},
	}, "nodeclient")
	if err != nil || !allowed {
		t.Errorf("allowed: %t, %v", allowed, err)
	}
	want := authorizationv1.SubjectAccessReviewSpec{
		User: "u", UID: "1", Groups: []string{"g", "h"}, Extra: map[string]authorizationv1.ExtraValue{"scope": {"a", "b"}, "other": {"c"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: "nodeclient", Verb: "create", Version: "*",
		},
	}
	if !equality.Semantic.DeepEqual(asked, want) {
		t.Errorf("asked %+v, want %+v", asked, want)
	}
}

func TestAcceptance04_ARightThatIsGivenLaterCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.Start(Descriptor(), nil)
	user := w.user("boot-")
	name := w.create(user, "system:node:n2")
	harness.Eventually(t, within, "refusal", func(context.Context) error {
		if w.reviews() == 0 {
			return errors.New("no review was made")
		}
		return nil
	})
	if csr := w.get(name); len(csr.Status.Conditions) > 0 {
		t.Errorf("conditions: %+v", csr.Status.Conditions)
	}
	w.permit(user, "nodeclient")
	w.approved(name, nodeMessage)
	if got := controller.Work().LastError; got != "" {
		t.Errorf("a refusal counts as an error: %s", got)
	}
}

func TestAcceptance05_TheRightOfANodeToItsOwnCertificateGoesFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	user := w.user("system:node:")
	w.permit(user, "selfnodeclient")
	w.permit(user, "nodeclient")
	w.approved(w.create(user, user), selfMessage)
}

func TestAcceptance06_OtherRequestsAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	w.settled()
	before := w.reviews()
	user := w.user("system:node:")
	w.permit(user, "selfnodeclient")
	w.permit(user, "nodeclient")
	var names []string
	for _, change := range []change{
		func(r *x509.CertificateRequest, _ *certificatesv1.CertificateSigningRequestSpec) {
			r.Subject.CommonName = "mike"
		},
		func(r *x509.CertificateRequest, _ *certificatesv1.CertificateSigningRequestSpec) {
			r.Subject.Organization = nil
		},
		func(r *x509.CertificateRequest, _ *certificatesv1.CertificateSigningRequestSpec) {
			r.Subject.Organization = []string{"system:masters"}
		},
		func(r *x509.CertificateRequest, _ *certificatesv1.CertificateSigningRequestSpec) {
			r.Subject.Organization = []string{"system:nodes", "x"}
		},
		func(_ *x509.CertificateRequest, s *certificatesv1.CertificateSigningRequestSpec) {
			s.Usages = append(s.Usages, certificatesv1.UsageServerAuth)
		},
		func(r *x509.CertificateRequest, _ *certificatesv1.CertificateSigningRequestSpec) {
			r.DNSNames = []string{"n1"}
		},
		func(_ *x509.CertificateRequest, s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName = certificatesv1.KubeletServingSignerName
		},
		func(_ *x509.CertificateRequest, s *certificatesv1.CertificateSigningRequestSpec) {
			s.SignerName = certificatesv1.KubeAPIServerClientSignerName
		},
	} {
		names = append(names, w.create(user, user, change))
	}
	w.settled()
	for _, name := range names {
		if csr := w.get(name); len(csr.Status.Conditions) > 0 || len(w.writes(name)) > 0 {
			t.Errorf("conditions of %s: %+v", name, csr.Status.Conditions)
		}
	}
	if got := w.reviews() - before; got != 1 { // that of the request that settled waits for
		t.Errorf("%d reviews for requests that need none", got-1)
	}
}

// decide adds a condition, as a person does.
func (w *world) decide(name string, kind certificatesv1.RequestConditionType) {
	w.t.Helper()
	csr := w.get(name)
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: kind, Status: corev1.ConditionTrue, Reason: "Test",
	})
	_, err := w.Admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(w.t.Context(), name, csr, metav1.UpdateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func TestAcceptance07_WhatIsDeniedStaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.Start(Descriptor(), nil)
	controller.Stop()
	user := w.user("system:node:")
	w.permit(user, "selfnodeclient")
	name := w.create(user, user)
	w.decide(name, certificatesv1.CertificateDenied)
	controller.Start()
	w.settled()
	if csr := w.get(name); len(csr.Status.Conditions) != 1 || csr.Status.Conditions[0].Type != certificatesv1.CertificateDenied {
		t.Errorf("conditions: %+v", csr.Status.Conditions)
	}
}

func TestADecisionThatIsTakenMeanwhileStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	user := w.user("system:node:")
	w.permit(user, "selfnodeclient")
	denied := make(chan struct{})
	remove := w.Proxy.Before(func(r apiproxy.Request) {
		if r.Verb == "create" && r.Resource.Resource == "subjectaccessreviews" {
			<-denied
		}
	})
	name := w.create(user, user)
	w.decide(name, certificatesv1.CertificateDenied)
	close(denied)
	remove()
	w.settled()
	if csr := w.get(name); len(csr.Status.Conditions) != 1 || csr.Status.Conditions[0].Type != certificatesv1.CertificateDenied {
		t.Errorf("conditions: %+v", csr.Status.Conditions)
	}
}

// A 404 of a proxy does not mean that the request has gone.
func TestARequestThatAProxyDoesNotFindIsApprovedLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Start(Descriptor(), nil)
	stop := w.Proxy.Answer(func(r apiproxy.Request) bool {
		return r.Verb == "update" && r.Resource == requests.GroupResource()
	}, http.StatusNotFound, 0)
	user := w.user("system:node:")
	w.permit(user, "selfnodeclient")
	name := w.create(user, user)
	harness.Eventually(t, within, "attempt", func(context.Context) error {
		if len(w.writes(name)) == 0 {
			return errors.New("there was none")
		}
		return nil
	})
	stop()
	w.approved(name, selfMessage)
}

func TestAcceptance08_WhatWasCreatedWhileStoppedIsApproved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.Start(Descriptor(), nil)
	controller.Stop()
	user := w.user("system:node:")
	w.permit(user, "selfnodeclient")
	name := w.create(user, user)
	controller.Start()
	w.approved(name, selfMessage)
}

func TestAcceptance09_WithoutTheRightToApproveItIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	descriptor := Descriptor()
	descriptor.ServiceAccount = "approver-" + w.label
	account := "system:serviceaccount:" + metav1.NamespaceSystem + ":" + descriptor.ServiceAccount
	rules := Descriptor().Rules
	w.grant(account, rules[0], rules[2])
	w.awaitRight(account, authorizationv1.ResourceAttributes{Group: "authorization.k8s.io", Resource: "subjectaccessreviews", Verb: "create"})
	w.Start(descriptor, nil)
	user := w.user("system:node:")
	w.permit(user, "selfnodeclient")
	name := w.create(user, user)
	harness.Eventually(t, within, "refusal", func(context.Context) error {
		if writes := w.writes(name); len(writes) == 0 || writes[0].Code != http.StatusForbidden {
			return fmt.Errorf("writes: %+v", writes)
		}
		return nil
	})
	w.grant(account, rules[1])
	w.approved(name, selfMessage)
}

func TestReviewsOfARefusedRequestAreRare(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// ahead is how far the controller's clock is before the API server's.
		ahead  time.Duration
		enough int
		// most reviews in a time since the first.
		most func(seconds float64) float64
	}{
		// Each is as long after the one before as that was after the creation.
		"clocks that agree": {0, 7, func(seconds float64) float64 { return 3 + math.Log2(1+seconds/5) }},
		"a clock behind":    {-time.Hour, 5, func(seconds float64) float64 { return 2 + seconds/5 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			label := rand.String(10)
			clock := harness.NewClock(t, time.Now())
			w := &world{
				Engine: harness.New(t, controlplane.Shared(t), harness.Options{
					Scope: apiproxy.Scope{Selected: requests.GroupResource(), Selector: "test=" + label}, Clock: clock,
				}),
				t: t, label: label, key: certificates.NewKey(t),
			}
			request := w.create(w.user("boot-"), "system:node:n2")
			clock.SetTime(w.get(request).CreationTimestamp.Add(test.ahead))
			begin := clock.Now()
			controller := w.Start(Descriptor(), nil)
			harness.Eventually(t, 3*within, "several reviews", func(context.Context) error {
				// A slow machine must not make a review take minutes by this clock.
				if work := controller.Work(); work.Busy == 0 && work.Depth == 0 {
					clock.Step(time.Second)
				}
				reviews := w.reviews()
				since := clock.Since(begin)
				if most := test.most(since.Seconds()); float64(reviews) > most {
					t.Fatalf("%d reviews in %s, want at most %.0f", reviews, since, most)
				}
				if reviews < test.enough {
					return fmt.Errorf("%d reviews after %s", reviews, since)
				}
				return nil
			})
		})
	}
}

func TestReloadsAtAnyMomentChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	controller := w.Start(Descriptor(), nil)
	node, boot, weak := w.user("system:node:"), w.user("boot-"), w.user("weak-")
	w.permit(node, "selfnodeclient")
	w.permit(boot, "nodeclient")
	stop := controller.Reload(uint64(time.Now().UnixNano()), 50, 10)
	const each = 40
	want := make([]map[string]string, each) // message by name, empty for none
	var group errgroup.Group
	group.SetLimit(4)
	for i := range each {
		group.Go(func() error {
			denied := w.create(weak, "system:node:n3")
			w.decide(denied, certificatesv1.CertificateDenied)
			want[i] = map[string]string{
				w.create(node, node):             selfMessage,
				w.create(boot, "system:node:n2"): nodeMessage,
				w.create(weak, "system:node:n2"): "",
				denied:                           "",
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	stop()
	for _, some := range want {
		for name, message := range some {
			if message != "" {
				w.approved(name, message)
			}
		}
	}
	w.settled()
	for _, some := range want {
		for name, message := range some {
			done := 0
			for _, r := range w.writes(name) {
				if r.Verb != "update" || r.Subresource != "approval" {
					t.Errorf("unexpected write: %+v", r)
				}
				if r.Code == http.StatusOK {
					done++
				}
			}
			if wanted := min(len(message), 1); done != wanted {
				t.Errorf("%s was decided %d times, want %d", name, done, wanted)
			}
		}
	}
}
