package ownerevents_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerevents"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/ownerindex"
)

func selectorOf(rs *appsv1.ReplicaSet) (labels.Selector, error) {
	return metav1.LabelSelectorAsSelector(rs.Spec.Selector)
}

func replicaSet(name, app string) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name)},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
}

func pod(version string, changes ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", ResourceVersion: version, Labels: map[string]string{"app": "web"}}}
	for _, change := range changes {
		change(p)
	}
	return p
}

func ownedBy(name string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: ptr.To(true)}}
	}
}

func app(name string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Labels = map[string]string{"app": name} }
}
func going(p *v1.Pod)   { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
func running(p *v1.Pod) { p.Status.Phase = v1.PodRunning }

func TestHandler(t *testing.T) {
	type handler = ownerevents.Handler[*v1.Pod, *appsv1.ReplicaSet]
	type event func(*handler)
	add := func(p *v1.Pod) event { return func(h *handler) { h.OnAdd(p, false) } }
	update := func(before, after *v1.Pod) event { return func(h *handler) { h.OnUpdate(before, after) } }
	remove := func(obj any) event { return func(h *handler) { h.OnDelete(obj) } }

	for _, test := range []struct {
		name  string
		event event
		want  []string
		log   string
	}{
		{name: "add", event: add(pod("1", ownedBy("web"))), want: []string{"web"}},
		{name: "add of one that goes already", event: add(pod("1", ownedBy("web"), going)), want: []string{"web"}},
		{name: "add with an owner that is not known", event: add(pod("1", ownedBy("other")))},
		{name: "add of an orphan", event: add(pod("1")), want: []string{"web", "web-too"}, log: "Selectors overlap"},
		{name: "add of a stray orphan", event: add(pod("1", app("db")))},
		{name: "add of an orphan that goes", event: add(pod("1", going))},
		{name: "initial list", event: func(h *handler) { h.OnAdd(pod("1", ownedBy("web")), true) }},
		{name: "resync", event: update(pod("1", ownedBy("web")), pod("1", ownedBy("web"), running))},
		{name: "update that matters", event: update(pod("1", ownedBy("web")), pod("2", ownedBy("web"), running)), want: []string{"web"}},
		{name: "update that does not", event: update(pod("1", ownedBy("web")), pod("2", ownedBy("web")))},
		{name: "move", event: update(pod("1", ownedBy("web")), pod("2", ownedBy("last"))), want: []string{"last", "web"}},
		{name: "move to nobody known", event: update(pod("1", ownedBy("web")), pod("2", ownedBy("other"))), want: []string{"web"}},
		{name: "adoption", event: update(pod("1"), pod("2", ownedBy("web"))), want: []string{"web"}},
		{name: "release", event: update(pod("1", ownedBy("last")), pod("2")), want: []string{"last", "web", "web-too"}, log: "Selectors overlap"},
		{name: "release of one that goes", event: update(pod("1", ownedBy("last"), going), pod("2", going)), want: []string{"last"}},
		{name: "orphan with new labels", event: update(pod("1", app("db")), pod("2")), want: []string{"web", "web-too"}, log: "Selectors overlap"},
		{name: "orphan with other changes", event: update(pod("1"), pod("2", running))},
		{name: "delete", event: remove(pod("1", ownedBy("web"))), want: []string{"web"}},
		{name: "delete that was missed", event: remove(cache.DeletedFinalStateUnknown{Obj: pod("1", ownedBy("web"))}), want: []string{"web"}},
		{name: "delete of an orphan", event: remove(pod("1"))},
		{name: "delete of something else", event: remove(cache.DeletedFinalStateUnknown{Obj: "p"}), log: "wrong type"},
		{name: "add of something else", event: func(h *handler) { h.OnAdd(replicaSet("web", "web"), false) }, log: "wrong type"},
		{name: "update of something else", event: func(h *handler) { h.OnUpdate(nil, pod("1")) }, log: "wrong type"},
	} {
		t.Run(test.name, func(t *testing.T) {
			owners := cache.NewIndexer(cache.MetaNamespaceKeyFunc, ownerindex.Selectors(selectorOf))
			for _, rs := range []*appsv1.ReplicaSet{replicaSet("web", "web"), replicaSet("web-too", "web"), replicaSet("last", "last")} {
				if err := owners.Add(rs); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			var log bytes.Buffer
			test.event(&handler{
				Kind:     "ReplicaSet",
				Owners:   owners,
				Selector: selectorOf,
				Enqueue:  func(rs *appsv1.ReplicaSet) { got = append(got, rs.Name) },
				Changed:  func(before, after *v1.Pod) bool { return before.Status.Phase != after.Status.Phase },
				Logger:   slog.New(slog.NewTextHandler(&log, nil)),
			})
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("owners %v, want %v", got, test.want)
			}
			if (test.log == "") != (log.Len() == 0) || !strings.Contains(log.String(), test.log) {
				t.Errorf("log %q, want %q", log.String(), test.log)
			}
		})
	}
}

// Without a selector, orphans concern nobody, and no index is needed.
func TestHandlerWithoutSelector(t *testing.T) {
	owners := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	if err := owners.Add(replicaSet("web", "web")); err != nil {
		t.Fatal(err)
	}
	var got []string
	var log bytes.Buffer
	h := &ownerevents.Handler[*v1.Pod, *appsv1.ReplicaSet]{
		Kind:    "ReplicaSet",
		Owners:  owners,
		Enqueue: func(rs *appsv1.ReplicaSet) { got = append(got, rs.Name) },
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
	}
	h.OnAdd(pod("1"), false)
	h.OnUpdate(pod("1"), pod("2", app("db")))
	if len(got) > 0 || log.Len() > 0 {
		t.Errorf("owners %v, log %q", got, log.String())
	}
	h.OnUpdate(pod("2", ownedBy("web")), pod("3"))
	if !slices.Equal(got, []string{"web"}) {
		t.Errorf("owners %v, want web", got)
	}
}
