package ownerindex_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
)

func podStore(t testing.TB, pods ...*v1.Pod) cache.Indexer {
	t.Helper()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Controllers())
	if err := store.AddIndexers(ownerindex.Nodes()); err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods {
		if err := store.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

func newPod(namespace, name, node string, refs ...metav1.OwnerReference) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: refs},
		Spec:       v1.PodSpec{NodeName: node},
	}
}

func controlledBy(kind, name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}
}

func podNames(t *testing.T, pods []*v1.Pod, err error) []string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	slices.Sort(names)
	return names
}

func TestDependants(t *testing.T) {
	plain := controlledBy("ReplicaSet", "web", "1")
	plain.Controller = nil
	store := podStore(t,
		newPod("a", "mine", "n1", controlledBy("ReplicaSet", "web", "1")),
		newPod("a", "former", "n1", controlledBy("ReplicaSet", "web", "0")),
		newPod("a", "other-kind", "n2", controlledBy("Job", "web", "1")),
		newPod("a", "orphan", ""),
		newPod("a", "plain", "n2", plain),
		newPod("b", "elsewhere", "n1", controlledBy("ReplicaSet", "web", "1")),
		newPod("b", "orphan", "n1"),
	)
	owner := ownerindex.Owner{Kind: "ReplicaSet", Namespace: "a", Name: "web", UID: "1"}
	for _, test := range []struct {
		name string
		list func() ([]*v1.Pod, error)
		want []string
	}{
		{"owned", func() ([]*v1.Pod, error) { return ownerindex.Owned[*v1.Pod](store, owner) }, []string{"a/mine"}},
		{"orphans", func() ([]*v1.Pod, error) { return ownerindex.Orphans[*v1.Pod](store, "a") }, []string{"a/orphan", "a/plain"}},
		{"candidates", func() ([]*v1.Pod, error) { return ownerindex.Candidates[*v1.Pod](store, owner) },
			[]string{"a/mine", "a/orphan", "a/plain"}},
		{"on a node", func() ([]*v1.Pod, error) { return ownerindex.OnNode(store, "n1") },
			[]string{"a/former", "a/mine", "b/elsewhere", "b/orphan"}},
		{"unscheduled are on no node", func() ([]*v1.Pod, error) { return ownerindex.OnNode(store, "") }, nil},
	} {
		pods, err := test.list()
		if got := podNames(t, pods, err); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// Half an owner would silently find the orphans of a namespace, or nothing.
func TestIncompleteOwnerIsAnError(t *testing.T) {
	store := podStore(t)
	whole := ownerindex.Owner{Kind: "ReplicaSet", Namespace: "a", Name: "web", UID: "1"}
	for _, spoil := range []func(*ownerindex.Owner){
		func(o *ownerindex.Owner) { o.Kind = "" },
		func(o *ownerindex.Owner) { o.Namespace = "" },
		func(o *ownerindex.Owner) { o.Name = "" },
		func(o *ownerindex.Owner) { o.UID = "" },
	} {
		owner := whole
		spoil(&owner)
		if _, err := ownerindex.Candidates[*v1.Pod](store, owner); err == nil {
			t.Errorf("no error for %+v", owner)
		}
	}
	if _, err := ownerindex.Orphans[*v1.Pod](store, ""); err == nil {
		t.Error("no error without namespace")
	}
}

func TestWrongTypeIsAnError(t *testing.T) {
	store := podStore(t, newPod("a", "orphan", ""))
	if _, err := ownerindex.Orphans[*appsv1.ReplicaSet](store, "a"); err == nil {
		t.Error("pods were returned as ReplicaSets")
	}
}

func replicaSet(name string, uid types.UID, selector *metav1.LabelSelector) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: uid},
		Spec:       appsv1.ReplicaSetSpec{Selector: selector},
	}
}

func selectorOf(rs *appsv1.ReplicaSet) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(rs.Spec.Selector)
}

func replicaSetStore(t testing.TB, sets ...*appsv1.ReplicaSet) cache.Indexer {
	t.Helper()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Selectors(selectorOf))
	for _, set := range sets {
		if err := store.Add(set); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

func TestResolve(t *testing.T) {
	store := replicaSetStore(t, replicaSet("web", "1", nil))
	pod := newPod("a", "p", "", controlledBy("ReplicaSet", "web", "1"))
	owner, ok := ownerindex.ControllerOf(pod)
	if !ok || owner != (ownerindex.Owner{Kind: "ReplicaSet", Namespace: "a", Name: "web", UID: "1"}) {
		t.Fatalf("controller of the pod is %+v %t", owner, ok)
	}
	if _, ok := ownerindex.ControllerOf(newPod("a", "orphan", "")); ok {
		t.Error("an orphan has a controller")
	}
	if rs, ok := ownerindex.Resolve[*appsv1.ReplicaSet](store, "ReplicaSet", owner); !ok || ownerindex.OwnerOf("ReplicaSet", rs) != owner {
		t.Errorf("resolved to %v %t", rs, ok)
	}
	for _, other := range []ownerindex.Owner{
		{Kind: "Job", Namespace: "a", Name: "web", UID: "1"},
		{Kind: "ReplicaSet", Namespace: "b", Name: "web", UID: "1"},
		{Kind: "ReplicaSet", Namespace: "a", Name: "db", UID: "1"},
		{Kind: "ReplicaSet", Namespace: "a", Name: "web", UID: "2"},
	} {
		if _, ok := ownerindex.Resolve[*appsv1.ReplicaSet](store, "ReplicaSet", other); ok {
			t.Errorf("%+v was resolved", other)
		}
	}
}

func TestMatching(t *testing.T) {
	expression := func(key string, op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	store := replicaSetStore(t,
		replicaSet("web", "1", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}),
		replicaSet("web-v1", "2", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "hash": "54f4c57dcb"}}),
		replicaSet("in", "3", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			expression("app", metav1.LabelSelectorOpIn, "web", "db")}}),
		replicaSet("exists", "4", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			expression("hash", metav1.LabelSelectorOpExists)}}),
		replicaSet("not", "5", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			expression("app", metav1.LabelSelectorOpNotIn, "db")}}),
		replicaSet("empty", "6", &metav1.LabelSelector{}),
		replicaSet("none", "7", nil),
		replicaSet("invalid", "8", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			expression("app", "Like", "w*")}}),
		func() *appsv1.ReplicaSet {
			rs := replicaSet("elsewhere", "9", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
			rs.Namespace = "b"
			return rs
		}(),
	)
	for _, test := range []struct {
		labels map[string]string
		want   []string
	}{
		{nil, nil},
		{map[string]string{"app": "web"}, []string{"in", "not", "web"}},
		{map[string]string{"app": "db"}, []string{"in"}},
		{map[string]string{"app": "web", "hash": "54f4c57dcb"}, []string{"exists", "in", "not", "web", "web-v1"}},
		{map[string]string{"hash": ""}, []string{"exists", "not"}},
		{map[string]string{"tier": "front"}, []string{"not"}},
	} {
		pod := newPod("a", "p", "")
		pod.Labels = test.labels
		matching, err := ownerindex.Matching(store, selectorOf, pod)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rs := range matching {
			got = append(got, rs.Name)
		}
		if slices.Sort(got); !slices.Equal(got, test.want) {
			t.Errorf("labels %v: got %v, want %v", test.labels, got, test.want)
		}
	}
}

// The index finds exactly what a scan of all owners finds, also after the
// owners' selectors have changed.
func TestMatchingEqualsScan(t *testing.T) {
	pick := func(of ...string) string { return of[rand.IntN(len(of))] }
	randomSelector := func() *metav1.LabelSelector {
		selector := &metav1.LabelSelector{}
		for range rand.IntN(3) {
			metav1.AddLabelToSelector(selector, pick("a", "b", "c"), pick("1", "2", "333"))
		}
		for range rand.IntN(3) {
			requirement := metav1.LabelSelectorRequirement{Key: pick("a", "b", "c"), Operator: metav1.LabelSelectorOperator(pick("In", "NotIn", "Exists", "DoesNotExist"))}
			if requirement.Operator == "In" || requirement.Operator == "NotIn" {
				requirement.Values = []string{pick("1", "2"), pick("2", "333")}
			}
			selector.MatchExpressions = append(selector.MatchExpressions, requirement)
		}
		return selector
	}
	for range 200 {
		store := replicaSetStore(t)
		for range 3 {
			for i := range 20 {
				if err := store.Update(replicaSet(fmt.Sprint(i), "1", randomSelector())); err != nil {
					t.Fatal(err)
				}
			}
		}
		pod := newPod("a", "p", "")
		pod.Labels = map[string]string{}
		for range rand.IntN(4) {
			pod.Labels[pick("a", "b", "c")] = pick("1", "2", "333")
		}
		want := map[string]bool{}
		for _, obj := range store.List() {
			rs := obj.(*appsv1.ReplicaSet)
			selector, err := selectorOf(rs)
			if err != nil {
				t.Fatal(err)
			}
			if len(pod.Labels) > 0 && !selector.Empty() && selector.Matches(labels.Set(pod.Labels)) {
				want[rs.Name] = true
			}
		}
		matching, err := ownerindex.Matching(store, selectorOf, pod)
		if err != nil {
			t.Fatal(err)
		}
		for _, rs := range matching {
			if !want[rs.Name] {
				t.Fatalf("labels %v: %s with %v was found wrongly or twice", pod.Labels, rs.Name, rs.Spec.Selector)
			}
			delete(want, rs.Name)
		}
		if len(want) > 0 {
			t.Fatalf("labels %v: %v were not found", pod.Labels, want)
		}
	}
}

func BenchmarkOwnedOf50000Pods(b *testing.B) {
	store := podStore(b)
	for owner := range 500 {
		ref := controlledBy("ReplicaSet", fmt.Sprint("rs-", owner), types.UID(fmt.Sprint(owner)))
		for i := range 100 {
			if err := store.Add(newPod("a", fmt.Sprintf("rs-%d-%d", owner, i), "n", ref)); err != nil {
				b.Fatal(err)
			}
		}
	}
	owner := ownerindex.Owner{Kind: "ReplicaSet", Namespace: "a", Name: "rs-7", UID: "7"}
	for b.Loop() {
		if pods, err := ownerindex.Candidates[*v1.Pod](store, owner); err != nil || len(pods) != 100 {
			b.Fatal(len(pods), err)
		}
	}
}

func BenchmarkMatchingAmong5000(b *testing.B) {
	store := replicaSetStore(b)
	for i := range 5000 {
		rs := replicaSet(fmt.Sprint(i), "1", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "hash": fmt.Sprint("54f4c57dcb", i)}})
		if err := store.Add(rs); err != nil {
			b.Fatal(err)
		}
	}
	pod := newPod("a", "p", "")
	pod.Labels = map[string]string{"app": "web", "hash": "54f4c57dcb7"}
	for b.Loop() {
		if matching, err := ownerindex.Matching(store, selectorOf, pod); err != nil || len(matching) != 1 {
			b.Fatal(len(matching), err)
		}
	}
}
