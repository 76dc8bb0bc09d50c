package servicepods_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/servicepods"
)

func service(name string, selector map[string]string) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: v1.ServiceSpec{Selector: selector}}
}

func store(t testing.TB, indexers cache.Indexers, objects ...any) cache.Indexer {
	t.Helper()
	s := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	for _, object := range objects {
		if err := s.Add(object); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// pod is ready and has an address.
func pod(version string, changes ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", ResourceVersion: version, Labels: map[string]string{"app": "web", "tier": "front"}},
		Status: v1.PodStatus{
			Phase:  v1.PodRunning,
			PodIP:  "10.0.0.1",
			PodIPs: []v1.PodIP{{IP: "10.0.0.1"}},
			Conditions: []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionTrue},
			},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func label(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		if value == "" {
			delete(p.Labels, key)
			return
		}
		p.Labels[key] = value
	}
}

func notReady(p *v1.Pod)  { p.Status.Conditions[0].Status = v1.ConditionFalse }
func going(p *v1.Pod)     { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
func finished(p *v1.Pod)  { p.Status.Phase = v1.PodSucceeded }
func noAddress(p *v1.Pod) { p.Status.PodIP, p.Status.PodIPs = "", nil }
func moved(p *v1.Pod)     { p.Status.PodIPs = []v1.PodIP{{IP: "10.0.0.2"}} }
func named(p *v1.Pod)     { p.Spec.Hostname = "h" }
func another(p *v1.Pod)   { p.UID = "another" }
func annotated(p *v1.Pod) { p.Annotations = map[string]string{"a": "b"} }

func TestAffected(t *testing.T) {
	services := store(t, servicepods.ServiceIndexers(),
		service("app", map[string]string{"app": "web"}),
		service("both", map[string]string{"app": "web", "tier": "front"}),
		service("db", map[string]string{"app": "db"}),
		service("none", nil),
		service("empty", map[string]string{}),
		func() *v1.Service {
			s := service("external", map[string]string{"app": "web"})
			s.Spec.Type = v1.ServiceTypeExternalName
			return s
		}(),
		func() *v1.Service {
			s := service("elsewhere", map[string]string{"app": "web"})
			s.Namespace = "b"
			return s
		}(),
	)
	for _, test := range []struct {
		name          string
		before, after *v1.Pod
		want          []string
	}{
		{"added", nil, pod("1"), []string{"app", "both"}},
		{"added without address", nil, pod("1", noAddress), nil},
		{"added when it has finished", nil, pod("1", finished), nil},
		{"added without labels", nil, pod("1", label("app", ""), label("tier", "")), nil},
		{"deleted", pod("1"), nil, []string{"app", "both"}},
		{"deleted without address", pod("1", noAddress), nil, nil},
		{"a resync", pod("1"), pod("1", notReady), nil},
		{"nothing that matters", pod("1"), pod("2", annotated), nil},
		{"not ready", pod("1"), pod("2", notReady), []string{"app", "both"}},
		{"terminating", pod("1"), pod("2", going), []string{"app", "both"}},
		{"still terminating", pod("1", going), pod("2", going, annotated), nil},
		{"finished, and ready all the same", pod("1"), pod("2", finished), []string{"app", "both"}},
		{"finished long since", pod("1", finished), pod("2", finished, notReady), nil},
		{"an address", pod("1", noAddress), pod("2"), []string{"app", "both"}},
		{"another address", pod("1"), pod("2", moved), []string{"app", "both"}},
		{"another pod of the name", pod("1"), pod("2", another), []string{"app", "both"}},
		{"another host name", pod("1"), pod("2", named), []string{"app", "both"}},
		{"no address before and after", pod("1", noAddress), pod("2", noAddress, notReady), nil},
		{"a label less", pod("1"), pod("2", label("tier", "")), []string{"both"}},
		{"a label more", pod("1", label("tier", "")), pod("2"), []string{"both"}},
		{"a label that nobody selects", pod("1"), pod("2", label("x", "y")), nil},
		{"a label less, and not ready", pod("1"), pod("2", label("tier", ""), notReady), []string{"app", "both"}},
		{"another app", pod("1"), pod("2", label("app", "db")), []string{"app", "both", "db"}},
		{"another app without address", pod("1", noAddress), pod("2", label("app", "db"), noAddress), nil},
		{"another app, with the address", pod("1", noAddress), pod("2", label("app", "db")), []string{"db"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			affected, err := servicepods.Affected(services, test.before, test.after)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range affected {
				got = append(got, name.Name)
			}
			if slices.Sort(got); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestHandler(t *testing.T) {
	services := store(t, servicepods.ServiceIndexers(), service("app", map[string]string{"app": "web"}))
	for _, test := range []struct {
		name  string
		event func(cache.ResourceEventHandler)
		want  int
	}{
		{"initial list", func(h cache.ResourceEventHandler) { h.OnAdd(pod("1"), true) }, 0},
		{"add", func(h cache.ResourceEventHandler) { h.OnAdd(pod("1"), false) }, 1},
		{"update", func(h cache.ResourceEventHandler) { h.OnUpdate(pod("1"), pod("2", notReady)) }, 1},
		{"delete", func(h cache.ResourceEventHandler) { h.OnDelete(pod("1")) }, 1},
		{"missed deletion", func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: pod("1")}) }, 1},
		{"something else", func(h cache.ResourceEventHandler) { h.OnAdd("", false); h.OnUpdate("", ""); h.OnDelete("") }, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := 0
			test.event(servicepods.Handler(services, func(cache.ObjectName) { got++ }, slog.New(slog.NewTextHandler(io.Discard, nil))))
			if got != test.want {
				t.Errorf("%d services, want %d", got, test.want)
			}
		})
	}
}

// Both ways of looking up find what a scan finds.
func TestIndexesEqualScans(t *testing.T) {
	pick := func() map[string]string {
		set := map[string]string{}
		for range rand.IntN(4) {
			set[string(rune('a'+rand.IntN(3)))] = string(rune('1' + rand.IntN(2)))
		}
		return set
	}
	for range 100 {
		services := store(t, servicepods.ServiceIndexers())
		pods := store(t, servicepods.PodIndexers())
		for range 2 { // labels and selectors change
			for i := range 15 {
				if err := services.Update(service(fmt.Sprint(i), pick())); err != nil {
					t.Fatal(err)
				}
				p := pod("1")
				p.Name, p.Labels = fmt.Sprint(i), pick()
				if err := pods.Update(p); err != nil {
					t.Fatal(err)
				}
			}
		}
		scan := map[string]bool{}
		for _, s := range services.List() {
			for _, p := range pods.List() {
				s, p := s.(*v1.Service), p.(*v1.Pod)
				if len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels)) {
					scan[s.Name+" "+p.Name] = true
				}
			}
		}
		byService, byPod := map[string]bool{}, map[string]bool{}
		for _, s := range services.List() {
			found, err := servicepods.Of(pods, s.(*v1.Service))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range found {
				byService[s.(*v1.Service).Name+" "+p.Name] = true
			}
		}
		for _, p := range pods.List() {
			found, err := servicepods.Services(services, p.(*v1.Pod))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range found {
				byPod[s.Name+" "+p.(*v1.Pod).Name] = true
			}
		}
		if fmt.Sprint(byService) != fmt.Sprint(scan) || fmt.Sprint(byPod) != fmt.Sprint(scan) {
			t.Fatalf("a scan finds %v, by service %v, by pod %v", scan, byService, byPod)
		}
	}
}

func TestWithPublishable(t *testing.T) {
	for ip, want := range map[string]bool{
		"10.0.0.1": true, "fd00::1": true, "010.0.0.1": true,
		"127.0.0.1": false, "::1": false, "169.254.1.1": false, "fe80::1": false, "0.0.0.0": false, "224.0.0.1": false, "": false, "x": false,
	} {
		if got := servicepods.Publishable(ip); got != want {
			t.Errorf("%q: %t", ip, got)
		}
	}
	good, bad := pod("1"), pod("2", func(p *v1.Pod) { p.Status.PodIPs = []v1.PodIP{{IP: "127.0.0.1"}, {IP: "fd00::1"}} })
	got := servicepods.WithPublishable([]*v1.Pod{good, bad})
	if got[0] != good || got[1] == bad || len(bad.Status.PodIPs) != 2 || len(got[1].Status.PodIPs) != 1 || got[1].Status.PodIPs[0].IP != "fd00::1" {
		t.Errorf("%+v, %+v", got[0].Status, got[1].Status)
	}
}

func BenchmarkPodsOfOneServiceAmong50000(b *testing.B) {
	pods := store(b, servicepods.PodIndexers())
	for i := range 50_000 {
		p := pod("1", label("app", fmt.Sprint("app-", i/50)))
		p.Name = fmt.Sprint(i)
		if err := pods.Add(p); err != nil {
			b.Fatal(err)
		}
	}
	s := service("web", map[string]string{"app": "app-7"})
	for b.Loop() {
		if found, err := servicepods.Of(pods, s); err != nil || len(found) != 50 {
			b.Fatal(len(found), err)
		}
	}
}
