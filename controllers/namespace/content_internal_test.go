package namespace

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	corelisters "k8s.io/client-go/listers/core/v1"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestNeedsDelete(t *testing.T) {
	t.Parallel()
	before, after := ptr.To(metav1.NewTime(now)), ptr.To(metav1.NewTime(now.Add(time.Second)))
	for _, test := range []struct {
		name string
		meta metav1.ObjectMeta
		want bool
	}{
		{"lives", metav1.ObjectMeta{}, true},
		{"lives with a finalizer", metav1.ObjectMeta{Finalizers: []string{"x"}}, true},
		{"waits for a finalizer", metav1.ObjectMeta{DeletionTimestamp: before, Finalizers: []string{"x"}}, false},
		{"waits for its dependents", metav1.ObjectMeta{DeletionTimestamp: before, Finalizers: []string{"x", "foregroundDeletion"}}, true},
		{"waits for orphaning", metav1.ObjectMeta{DeletionTimestamp: before, Finalizers: []string{"orphan"}}, true},
		{"within its grace period", metav1.ObjectMeta{DeletionTimestamp: after}, false},
		{"overdue", metav1.ObjectMeta{DeletionTimestamp: before}, true},
		{"its kubelet is late", metav1.ObjectMeta{DeletionTimestamp: before, DeletionGracePeriodSeconds: ptr.To[int64](30)}, false},
		{"its kubelet is not done", metav1.ObjectMeta{
			DeletionTimestamp: before, DeletionGracePeriodSeconds: ptr.To[int64](1), Finalizers: []string{"foregroundDeletion"},
		}, false},
		{"nobody has to end it", metav1.ObjectMeta{DeletionTimestamp: before, DeletionGracePeriodSeconds: ptr.To[int64](0)}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := needsDelete(&metav1.PartialObjectMetadata{ObjectMeta: test.meta}, now); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}

func podContent(grace int64, finalizers ...string) content {
	var c content
	until := metav1.NewTime(now.Add(time.Duration(grace) * time.Second))
	c.add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "p", DeletionTimestamp: &until, DeletionGracePeriodSeconds: &grace, Finalizers: finalizers,
	}}, now)
	return c
}

func TestFindings(t *testing.T) {
	t.Parallel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n5"}}
	podType := resource{GroupVersionResource: podResource}
	deployments := resource{GroupVersionResource: apischema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}}
	held := content{objects: make([]object, 2), finalizers: map[string]int{"b": 1, "a": 2}}
	const unexpected = "unexpected items still remain in namespace: n5 for gvr: /v1, Resource=pods"
	for _, test := range []struct {
		name                      string
		fill                      func(*findings)
		recheck                   time.Duration
		err                       string
		content, left, finalizers string
	}{
		{name: "pods in their grace period", recheck: 16 * time.Second, left: "pods. has 1 resource instances",
			fill: func(f *findings) { f.add(ns, podType, podContent(30), nil) }},
		{name: "pods that are left", recheck: 5 * time.Second, left: "pods. has 1 resource instances",
			fill: func(f *findings) { f.podsLeft = true; f.add(ns, podType, podContent(30), nil) }},
		{name: "pods that go soon", recheck: time.Second, left: "pods. has 1 resource instances",
			fill: func(f *findings) { f.podsLeft = true; f.add(ns, podType, podContent(1), nil) }},
		{name: "overdue pods", recheck: time.Second, left: "pods. has 1 resource instances",
			fill: func(f *findings) { f.add(ns, podType, podContent(0), nil) },
			err:  "failed to delete pods for namespace: n5, err: " + unexpected, content: unexpected},
		{name: "finalizers", recheck: 8 * time.Second,
			left: "deployments.apps has 2 resource instances", finalizers: "a in 2 resource instances, b in 1 resource instances",
			fill: func(f *findings) { f.add(ns, deployments, held, nil) }},
		{name: "several", recheck: 16 * time.Second,
			left:       "deployments.apps has 2 resource instances, pods. has 1 resource instances",
			finalizers: "a in 3 resource instances, b in 1 resource instances",
			fill:       func(f *findings) { f.add(ns, deployments, held, nil); f.add(ns, podType, podContent(30, "a"), nil) }},
		{name: "failure", recheck: time.Second, err: "list failed", content: "list failed",
			fill: func(f *findings) { f.add(ns, deployments, held, errors.New("list failed")) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFindings(now)
			test.fill(f)
			if f.clean() {
				t.Error("clean")
			}
			if got := f.recheck(); got != test.recheck {
				t.Errorf("recheck after %s, want %s", got, test.recheck)
			}
			if got := errorText(f.err()); got != test.err {
				t.Errorf("error %q, want %q", got, test.err)
			}
			check := func(got, before, want string) {
				t.Helper()
				if want != "" {
					want = before + want
				}
				if got != want {
					t.Errorf("message %q, want %q", got, want)
				}
			}
			check(f.failureText(), "Failed to delete all resource types, 1 remaining: ", test.content)
			check(f.leftText(), "Some resources are remaining: ", test.left)
			check(f.heldText(), "Some content in the namespace has finalizers remaining: ", test.finalizers)
		})
	}
}

func TestDiscoveryText(t *testing.T) {
	t.Parallel()
	f := newFindings(now)
	f.unknown = &discovery.ErrGroupDiscoveryFailed{Groups: map[apischema.GroupVersion]error{{Group: "g", Version: "v1"}: errors.New("down")}}
	want := "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: g/v1: down"
	if got := f.discoveryText(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	f.unknown = errors.New("refused")
	if got := f.discoveryText(); got != "refused" {
		t.Errorf("%q, want the error", got)
	}
}

func TestDiscoveryIsIncompleteWithoutNamespaces(t *testing.T) {
	t.Parallel()
	core := &metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods"}, {Name: "namespaces"}}}
	halfOfCore := &metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods"}}}
	group := &metav1.APIResourceList{GroupVersion: "apps/v1"}
	for _, test := range []struct {
		name  string
		lists []*metav1.APIResourceList
		want  string
	}{
		{"nothing", nil, "discovery shows no namespaces"},
		{"no core group", []*metav1.APIResourceList{group}, "discovery shows no namespaces"},
		{"a part of the core group", []*metav1.APIResourceList{halfOfCore, group}, "discovery shows no namespaces"},
		{"all of it", []*metav1.APIResourceList{core, group}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := errorText(incomplete(test.lists)); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestKnownResourcesAreSweptThoughDiscoveryLacksThem(t *testing.T) {
	t.Parallel()
	named := func(group, version string) resource {
		return resource{GroupVersionResource: apischema.GroupVersionResource{Group: group, Version: version, Resource: "things"}}
	}
	got := withKnown([]resource{named("a", "v2"), named("c", "v1")}, []resource{named("a", "v1"), named("b", "v1")})
	vanished := named("b", "v1")
	vanished.vanished = true
	if want := []resource{named("a", "v2"), named("c", "v1"), vanished}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestNotServed(t *testing.T) {
	t.Parallel()
	things := apischema.GroupResource{Group: "example.com", Resource: "things"}
	status := apierrors.NewNotFound(things, "")
	page := apierrors.NewGenericServerResponse(http.StatusNotFound, "list", things, "", "404 page not found", 0, true)
	for _, test := range []struct {
		name     string
		vanished bool
		err      error
		want     bool
	}{
		{"no error", true, nil, false},
		{"another error", true, errors.New("refused"), false},
		{"status", false, status, true},
		{"page of a path that discovery shows", false, page, false},
		{"page of a path that discovery does not show", true, page, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := (resource{vanished: test.vanished}).notServed(test.err); got != test.want {
				t.Errorf("%t, want %t", got, test.want)
			}
		})
	}
}

func TestMergeConditions(t *testing.T) {
	t.Parallel()
	fine := newFindings(now).conditions()
	trouble := newFindings(now)
	trouble.unparsed = errors.New("unparsed")
	foreign := corev1.NamespaceCondition{Type: "example.com/Foreign", Status: corev1.ConditionTrue}
	first, changed := merge([]corev1.NamespaceCondition{foreign}, fine, now)
	if !changed || len(first) != 6 || first[0] != foreign || !first[1].LastTransitionTime.Time.Equal(now) {
		t.Fatalf("new conditions: %t, %v", changed, first)
	}
	later := now.Add(time.Minute)
	if same, changed := merge(first, fine, later); changed || !slices.Equal(same, first) {
		t.Errorf("the same conditions: %t, %v", changed, same)
	}
	flipped, changed := merge(first, trouble.conditions(), later)
	if !changed || !flipped[2].LastTransitionTime.Time.Equal(later) || flipped[2].Message != "unparsed" ||
		!flipped[1].LastTransitionTime.Time.Equal(now) {
		t.Errorf("a condition that flips: %t, %v", changed, flipped)
	}
	trouble.unparsed = errors.New("otherwise")
	other, changed := merge(flipped, trouble.conditions(), later.Add(time.Minute))
	if !changed || other[2].Message != "otherwise" || !other[2].LastTransitionTime.Time.Equal(later) {
		t.Errorf("another message: %t, %v", changed, other)
	}
	if first[2].Message == "unparsed" {
		t.Error("the conditions of the namespace were changed")
	}
}

func TestOthersOf(t *testing.T) {
	t.Parallel()
	got := othersOf([]corev1.FinalizerName{"z", corev1.FinalizerKubernetes, "a", "z", corev1.FinalizerKubernetes})
	if want := []corev1.FinalizerName{"a", "z"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A sweep that is under way when the name comes to belong to another namespace ends.
func TestDeleteOnlyWhatTheCacheShows(t *testing.T) {
	t.Parallel()
	for _, uid := range []string{"", "other", "same"} {
		t.Run(fmt.Sprintf("cached %q", uid), func(t *testing.T) {
			t.Parallel()
			store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "same"}}
			if uid != "" {
				cached := ns.DeepCopy()
				cached.UID = types.UID(uid)
				if err := store.Add(cached); err != nil {
					t.Fatal(err)
				}
			}
			client := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
			c := &namespaceController{metadata: client, namespaces: corelisters.NewNamespaceLister(store)}
			err := c.delete(t.Context(), ns, resource{GroupVersionResource: podResource, deleteCollection: true}, nil)
			if same := uid == "same"; same != (err == nil) || same != (len(client.Actions()) == 1) {
				t.Errorf("%v after %v", err, client.Actions())
			}
			if err != nil && !errors.Is(err, errReplaced) {
				t.Error(err)
			}
		})
	}
}

func TestDeletions(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakePassiveClock(now)
	d := newDeletions(clock)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1"}}
	if !d.observe(ns) || d.observe(ns) {
		t.Error("a deletion is new once")
	}
	clock.SetTime(now.Add(time.Minute))
	if got := d.since(ns); !got.Equal(now) {
		t.Errorf("since %s, want %s", got, now)
	}
	if !d.startSweep(ns) || d.startSweep(ns) {
		t.Error("an early sweep starts once")
	}
	held := []resource{{GroupVersionResource: podResource}}
	d.hold(ns, held)
	if got := d.held(ns); !slices.Equal(got, held) {
		t.Errorf("held %v, want %v", got, held)
	}
	clock.SetTime(clock.Now().Add(sweepInterval))
	if got := d.held(ns); got != nil {
		t.Errorf("held %v, want another sweep", got)
	}
	d.restart(ns)
	if got := d.since(ns); !got.Equal(clock.Now()) || d.startSweep(ns) {
		t.Errorf("since %s after the restart of its grace period, want %s", got, clock.Now())
	}
	again := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "2"}}
	if !d.observe(again) || !d.startSweep(again) {
		t.Error("another namespace of the name is another deletion")
	}
	d.forget("n")
	if got := d.since(again); !got.Equal(clock.Now()) || len(d.byName) > 0 {
		t.Errorf("since %s when nothing is known, want now, and nothing kept", got)
	}
	if !d.observe(again) {
		t.Error("it was forgotten")
	}
}
