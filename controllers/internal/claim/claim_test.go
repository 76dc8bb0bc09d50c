package claim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var (
	replicaSets = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	pods        = schema.GroupResource{Resource: "pods"}
)

func owner(changes ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "rs"}}
	for _, change := range changes {
		change(rs)
	}
	return rs
}

func deleted(rs *appsv1.ReplicaSet) {
	rs.DeletionTimestamp = &metav1.Time{Time: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
}

// pod matches unless changed, and is an orphan.
func pod(changes ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "pod", Labels: map[string]string{"app": "web"}}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func stray(p *v1.Pod) { p.Labels = map[string]string{"app": "db"} }
func going(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
func elsewhere(p *v1.Pod) {
	p.Namespace = "b"
}
func named(name string) func(*v1.Pod) { return func(p *v1.Pod) { p.Name = name } }
func ownedBy(uid types.UID) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: uid, Controller: ptr.To(true)}}
	}
}
func mentions(uid types.UID) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: uid})
	}
}

// server answers GetOwner with live, and records patches, which fail by name of the pod.
type server struct {
	live    *appsv1.ReplicaSet
	liveErr error
	fail    map[string]error
	reads   int
	patches []string
}

func (s *server) claims(of *appsv1.ReplicaSet) *Claims[*v1.Pod] {
	return &Claims[*v1.Pod]{
		Owner:     of,
		OwnerKind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Kind:      "Pod",
		Selector:  labels.SelectorFromSet(labels.Set{"app": "web"}),
		GetOwner: func(_ context.Context, name string) (metav1.Object, error) {
			s.reads++
			if name != of.Name {
				return nil, errors.New("asked for another owner: " + name)
			}
			return s.live, s.liveErr
		},
		Patch: func(_ context.Context, p *v1.Pod, patch []byte) (*v1.Pod, error) {
			s.patches = append(s.patches, p.Name+" "+string(patch))
			if err := s.fail[p.Name]; err != nil {
				return nil, err
			}
			answer := p.DeepCopy()
			answer.ResourceVersion = "answer"
			return answer, nil
		},
	}
}

const (
	adoptPatch = `p {"metadata":{"uid":"pod","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"rs","controller":true,"blockOwnerDeletion":true}]}}`
	dropPatch  = `p {"metadata":{"uid":"pod","ownerReferences":[{"$patch":"delete","uid":"rs"}]}}`
)

func TestClaim(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil)
	gone := apierrors.NewNotFound(pods, "p")
	refused := apierrors.NewForbidden(pods, "p", errors.New("no"))
	conflict := apierrors.NewConflict(pods, "p", errors.New("uid"))
	for _, test := range []struct {
		name    string
		owner   *appsv1.ReplicaSet
		live    *appsv1.ReplicaSet // default: as owner
		liveErr error
		patch   error
		pod     *v1.Pod
		claimed bool
		patches []string
		err     string
	}{
		{name: "mine", pod: pod(ownedBy("rs")), claimed: true},
		{name: "mine, owner going", owner: owner(deleted), pod: pod(ownedBy("rs")), claimed: true},
		{name: "mine, going itself", pod: pod(ownedBy("rs"), going), claimed: true},
		{name: "mine with a selector that no longer matches", pod: pod(ownedBy("rs"), stray), patches: []string{dropPatch}},
		{name: "no release while the owner goes", owner: owner(deleted), pod: pod(ownedBy("rs"), stray)},
		{name: "release of one that is gone", pod: pod(ownedBy("rs"), stray), patch: gone, patches: []string{dropPatch}},
		{name: "release of one that lost the reference", pod: pod(ownedBy("rs"), stray), patch: invalid, patches: []string{dropPatch}},
		{name: "release refused", pod: pod(ownedBy("rs"), stray), patch: refused, patches: []string{dropPatch}, err: `release Pod a/p: pods "p" is forbidden: no`},
		{name: "another's", pod: pod(ownedBy("other"))},
		{name: "another's that mentions me", pod: pod(ownedBy("other"), mentions("rs"))},
		{name: "orphan", pod: pod(), claimed: true, patches: []string{adoptPatch}},
		{name: "orphan that mentions me", pod: pod(mentions("rs")), claimed: true, patches: []string{adoptPatch}},
		{name: "stray orphan", pod: pod(stray)},
		{name: "orphan going", pod: pod(going)},
		{name: "orphan elsewhere", pod: pod(elsewhere)},
		{name: "orphan, owner going", owner: owner(deleted), pod: pod()},
		{name: "orphan gone", pod: pod(), patch: gone, patches: []string{adoptPatch}},
		{name: "orphan that another was faster to adopt", pod: pod(), patch: invalid, patches: []string{adoptPatch}, err: `adopt Pod a/p: Pod "p" is invalid`},
		{name: "orphan replaced by another", pod: pod(), patch: conflict, patches: []string{adoptPatch}, err: `adopt Pod a/p: Operation cannot be fulfilled`},
		{name: "orphan, owner already deleted at the server", live: owner(deleted), pod: pod(),
			err: `can't adopt Pod a/p (pod): a/web has just been deleted at 2026-11-30 12:00:00 +0000 UTC`},
		{name: "orphan, owner replaced at the server", live: owner(func(rs *appsv1.ReplicaSet) { rs.UID = "new" }), pod: pod(),
			err: `can't adopt Pod a/p (pod): original ReplicaSet a/web is gone: got uid new, wanted rs`},
		{name: "orphan, owner gone at the server", liveErr: apierrors.NewNotFound(replicaSets, "web"), pod: pod(),
			err: `can't adopt Pod a/p (pod): replicasets.apps "web" not found`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.owner == nil {
				test.owner = owner()
			}
			if test.live == nil {
				test.live = test.owner
			}
			s := &server{live: test.live, liveErr: test.liveErr, fail: map[string]error{"p": test.patch}}
			before := test.pod.DeepCopy()
			claimed, err := s.claims(test.owner).Claim(t.Context(), []*v1.Pod{test.pod})
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
			if (len(claimed) == 1) != test.claimed {
				t.Errorf("claimed %d, want %t", len(claimed), test.claimed)
			}
			if !slices.Equal(s.patches, test.patches) {
				t.Errorf("patches %q, want %q", s.patches, test.patches)
			}
			if !equality.Semantic.DeepEqual(before, test.pod) {
				t.Error("the candidate was changed")
			}
		})
	}
}

func TestAdoptedAreReturnedAsAnswered(t *testing.T) {
	s := &server{live: owner()}
	claimed, err := s.claims(owner()).Claim(t.Context(), []*v1.Pod{pod()})
	if err != nil || len(claimed) != 1 || claimed[0].ResourceVersion != "answer" {
		t.Errorf("got %v, %v", claimed, err)
	}
}

func TestOwnerIsReadOnceAndOnlyForOrphans(t *testing.T) {
	s := &server{live: owner()}
	claims := s.claims(owner())
	if _, err := claims.Claim(t.Context(), []*v1.Pod{pod(ownedBy("rs")), pod(stray), pod(ownedBy("rs"), stray)}); err != nil {
		t.Fatal(err)
	}
	if s.reads != 0 {
		t.Errorf("the owner was read %d times without an orphan to adopt", s.reads)
	}
	if _, err := claims.Claim(t.Context(), []*v1.Pod{pod(), pod(named("q"))}); err != nil {
		t.Fatal(err)
	}
	if s.reads != 1 {
		t.Errorf("the owner was read %d times, want once", s.reads)
	}
}

// One failure keeps the result back, but the others are dealt with.
func TestAllCandidatesAreTried(t *testing.T) {
	s := &server{live: owner(), fail: map[string]error{"q": errors.New("q refused"), "r": errors.New("r refused")}}
	claimed, err := s.claims(owner()).Claim(t.Context(), []*v1.Pod{pod(), pod(named("q")), pod(named("r")), pod(named("s"))})
	if claimed != nil || err == nil || !strings.Contains(err.Error(), "q refused") || !strings.Contains(err.Error(), "r refused") {
		t.Errorf("claimed %v, error %v", claimed, err)
	}
	if len(s.patches) != 4 {
		t.Errorf("%d patches, want 4", len(s.patches))
	}
}

func TestClaimEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &server{live: owner()}
	if claimed, err := s.claims(owner()).Claim(ctx, []*v1.Pod{pod()}); claimed != nil || !errors.Is(err, context.Canceled) || len(s.patches) > 0 {
		t.Errorf("claimed %v, error %v, patches %v", claimed, err, s.patches)
	}
}

func TestFinalizersAndMatch(t *testing.T) {
	s := &server{live: owner()}
	claims := s.claims(owner())
	claims.Finalizers = []string{"batch.kubernetes.io/job-tracking"}
	claims.Match = func(p *v1.Pod) bool { return p.Name != "q" }
	if _, err := claims.Claim(t.Context(), []*v1.Pod{pod(), pod(named("q")), pod(named("q"), ownedBy("rs"))}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		strings.TrimSuffix(adoptPatch, "}}") + `,"finalizers":["batch.kubernetes.io/job-tracking"]}}`,
		"q" + strings.TrimPrefix(strings.TrimSuffix(dropPatch, "}}"), "p") + `,"$deleteFromPrimitiveList/finalizers":["batch.kubernetes.io/job-tracking"]}}`,
	}
	if !slices.Equal(s.patches, want) {
		t.Errorf("patches\n%q, want\n%q", s.patches, want)
	}
}
