package deletionorder

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.Time{Time: now.Add(-d)} }

// pod is running and ready on node a unless changed.
func pod(name string, changes ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: ago(24 * time.Hour)},
		Spec:       v1.PodSpec{NodeName: "a"},
		Status: v1.PodStatus{
			Phase:      v1.PodRunning,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: ago(12 * time.Hour)}},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func unscheduled(p *v1.Pod)                  { p.Spec.NodeName = "" }
func notReady(p *v1.Pod)                     { p.Status.Conditions = nil }
func phase(to v1.PodPhase) func(*v1.Pod)     { return func(p *v1.Pod) { p.Status.Phase = to } }
func onNode(name string) func(*v1.Pod)       { return func(p *v1.Pod) { p.Spec.NodeName = name } }
func created(at metav1.Time) func(*v1.Pod)   { return func(p *v1.Pod) { p.CreationTimestamp = at } }
func uid(u types.UID) func(*v1.Pod)          { return func(p *v1.Pod) { p.UID = u } }
func readyFor(d time.Duration) func(*v1.Pod) { return readyAt(ago(d)) }

func readyAt(at metav1.Time) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Status.Conditions[0].LastTransitionTime = at }
}

func cost(text string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations = map[string]string{v1.PodDeletionCost: text} }
}

func restarts(counts ...int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, count := range counts {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{RestartCount: count})
		}
	}
}

func sidecar(policy *v1.ContainerRestartPolicy, count int32) func(*v1.Pod) {
	return func(p *v1.Pod) {
		name := strconv.Itoa(len(p.Spec.InitContainers))
		p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: name, RestartPolicy: policy})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, v1.ContainerStatus{Name: name, RestartCount: count})
	}
}

func TestRanked(t *testing.T) {
	always := ptr.To(v1.ContainerRestartPolicyAlways)
	for _, test := range []struct {
		name  string
		ranks map[string]int
		noCos bool
		want  []*v1.Pod // in the order in which they are to be deleted
	}{
		{name: "no node, phase, ready", want: []*v1.Pod{
			pod("f", unscheduled, phase(v1.PodPending), notReady),
			pod("e", phase(""), notReady),
			pod("d", phase(v1.PodUnknown), notReady),
			pod("c", notReady),
			pod("a"),
		}},
		{name: "unscheduled goes before pending on a node", want: []*v1.Pod{
			pod("b", unscheduled), pod("a", phase(v1.PodPending), notReady),
		}},
		{name: "phase goes before cost", want: []*v1.Pod{
			pod("b", phase(v1.PodPending), cost("100")), pod("a", cost("-100")),
		}},
		{name: "2h and 5h are of different magnitude", want: []*v1.Pod{
			pod("b", readyFor(2*time.Hour)), pod("a", readyFor(5*time.Hour)),
		}},
		{name: "5h and 8h are of the same magnitude, the UID decides", want: []*v1.Pod{
			pod("a", readyFor(8*time.Hour)), pod("b", readyFor(5*time.Hour)),
		}},
		{name: "UID decides before restarts", want: []*v1.Pod{
			pod("a", readyFor(8*time.Hour)), pod("b", readyFor(5*time.Hour), restarts(9)),
		}},
		{name: "unknown ready time first", want: []*v1.Pod{
			pod("b", readyAt(metav1.Time{})), pod("a", readyFor(time.Nanosecond)),
		}},
		{name: "ready in the future counts as newest", want: []*v1.Pod{
			pod("b", readyFor(-time.Hour)), pod("a", readyFor(time.Nanosecond)),
		}},
		{name: "cost goes before rank", ranks: map[string]int{"b": 2, "a": 1}, want: []*v1.Pod{
			pod("a", cost("10")), pod("b", cost("100")),
		}},
		{name: "rank alone without costs", noCos: true, ranks: map[string]int{"b": 2, "a": 1}, want: []*v1.Pod{
			pod("b", cost("100")), pod("a", cost("10")),
		}},
		{name: "negative cost before none before positive", want: []*v1.Pod{
			pod("c", cost("-5")), pod("a", readyFor(time.Hour)), pod("b", cost("5"), readyFor(time.Minute)),
		}},
		{name: "rank goes before restarts", ranks: map[string]int{"b": 2, "a": 1}, want: []*v1.Pod{
			pod("b"), pod("a", restarts(9001)),
		}},
		{name: "most restarts of a container, not their sum", want: []*v1.Pod{
			pod("b", restarts(1, 5)), pod("a", restarts(4, 4)),
		}},
		{name: "sidecar restarts break the tie", want: []*v1.Pod{
			pod("b", restarts(3), sidecar(always, 2)), pod("a", restarts(3), sidecar(nil, 9)),
		}},
		{name: "newest by magnitude", want: []*v1.Pod{
			pod("b", created(ago(2*time.Hour))), pod("a", created(ago(5*time.Hour))),
		}},
		{name: "age of the same magnitude, the UID decides", want: []*v1.Pod{
			pod("a", created(ago(8*time.Hour))), pod("b", created(ago(5*time.Hour))),
		}},
		{name: "all else equal, the UID decides", want: []*v1.Pod{pod("a"), pod("b"), pod("c")}},
		{name: "unknown creation time first", want: []*v1.Pod{
			pod("b", created(metav1.Time{})), pod("a"),
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			rank := func(p *v1.Pod) int { return test.ranks[p.Name] }
			for range 10 {
				given := slices.Clone(test.want)
				rand.Shuffle(len(given), func(i, j int) { given[i], given[j] = given[j], given[i] })
				before := slices.Clone(given)
				if got := Ranked(given, rank, now, !test.noCos); !slices.Equal(got, test.want) {
					t.Fatalf("got %v, want %v", names(got), names(test.want))
				}
				if !slices.Equal(given, before) {
					t.Fatal("the given slice was reordered")
				}
			}
		})
	}
}

func TestPlain(t *testing.T) {
	for _, test := range []struct {
		name string
		want []*v1.Pod
	}{
		{"no node, phase, ready", []*v1.Pod{
			pod("d", unscheduled, phase(v1.PodPending), notReady),
			pod("c", phase(v1.PodUnknown), notReady),
			pod("b", notReady),
			pod("a"),
		}},
		{"ready most recently, to the second", []*v1.Pod{
			pod("c", readyAt(metav1.Time{})), pod("b", readyFor(5*time.Hour)), pod("a", readyFor(5*time.Hour+time.Second)),
		}},
		{"restarts before age", []*v1.Pod{pod("a", restarts(1)), pod("b", created(ago(time.Hour)))}},
		{"created most recently", []*v1.Pod{
			pod("c", created(metav1.Time{})), pod("b", created(ago(5*time.Hour))), pod("a", created(ago(8*time.Hour))),
		}},
		{"all else equal, the UID decides", []*v1.Pod{pod("a"), pod("b")}},
		{"cost does not count", []*v1.Pod{pod("b", restarts(1), cost("100")), pod("a", cost("-100"))}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 10 {
				given := slices.Clone(test.want)
				rand.Shuffle(len(given), func(i, j int) { given[i], given[j] = given[j], given[i] })
				if got := Plain(given); !slices.Equal(got, test.want) {
					t.Fatalf("got %v, want %v", names(got), names(test.want))
				}
			}
		})
	}
}

// randomPod draws from few values, so that ties are frequent.
func randomPod(i int) *v1.Pod {
	pick := func(of ...func(*v1.Pod)) func(*v1.Pod) { return of[rand.IntN(len(of))] }
	keep := func(*v1.Pod) {}
	times := []time.Duration{-time.Hour, 0, time.Hour, 90 * time.Minute, 5 * time.Hour, 8 * time.Hour}
	p := pod(strconv.Itoa(i),
		pick(keep, unscheduled, onNode("b")),
		pick(phase(v1.PodRunning), phase(v1.PodPending), phase(v1.PodUnknown)),
		pick(cost("1"), cost("-1"), keep),
		pick(restarts(1), restarts(2), keep),
		pick(readyAt(metav1.Time{}), readyFor(times[rand.IntN(len(times))])),
		pick(created(metav1.Time{}), created(ago(times[rand.IntN(len(times))]))),
		uid(types.UID(strconv.Itoa(rand.IntN(100)))),
	)
	if rand.IntN(3) == 0 {
		notReady(p)
	}
	return p
}

// Which of two pods goes first does not depend on which is asked about first,
// and no pod goes before itself.
func TestOrderIsAntisymmetric(t *testing.T) {
	for i := range 20000 {
		a, b := traitsOf(randomPod(i)), traitsOf(randomPod(i))
		a.rank, b.rank = rand.IntN(3), rand.IntN(3)
		a.cost, b.cost = Cost(a.pod), Cost(b.pod)
		for name, compare := range map[string]func(a, b traits) int{
			"ranked": func(a, b traits) int { return compareRanked(a, b, now) },
			"plain":  comparePlain,
		} {
			if ab, ba := compare(a, b), compare(b, a); ab != -ba {
				t.Fatalf("%s: %d one way, %d the other:\n%+v\n%+v", name, ab, ba, a, b)
			}
			if aa := compare(a, a); aa != 0 {
				t.Fatalf("%s: a pod compares as %d with itself: %+v", name, aa, a)
			}
		}
	}
}

// Whatever the pods, the result has each of them once, and the rules that are
// transitive hold throughout.
func TestSortKeepsPodsAndStateOrder(t *testing.T) {
	for range 200 {
		given := make([]*v1.Pod, rand.IntN(60))
		for i := range given {
			given[i] = randomPod(i)
		}
		for _, got := range [][]*v1.Pod{Ranked(given, func(p *v1.Pod) int { return len(p.Name) }, now, true), Plain(given)} {
			seen := map[*v1.Pod]bool{}
			for i, p := range got {
				seen[p] = true
				if i > 0 && compareState(traitsOf(got[i-1]), traitsOf(p)) > 0 {
					t.Fatalf("%s before %s", got[i-1].Name, p.Name)
				}
			}
			if len(seen) != len(given) || len(got) != len(given) {
				t.Fatalf("%d pods became %d, %d different", len(given), len(got), len(seen))
			}
		}
	}
}

func TestCost(t *testing.T) {
	for text, want := range map[string]int32{
		"0": 0, "10": 10, "-5": -5, "2147483647": 2147483647, "-2147483648": -2147483648,
		"+10": 0, "008": 0, "abc": 0, "": 0, "2147483648": 0, "-2147483649": 0, "1.5": 0, "1e3": 0, " 1": 0, "1 ": 0, "0x10": 0, "1_000": 0, "-": 0,
	} {
		if got := Cost(pod("a", cost(text))); got != want {
			t.Errorf("%q costs %d, want %d", text, got, want)
		}
	}
	if got := Cost(&v1.Pod{}); got != 0 {
		t.Errorf("without annotation the cost is %d", got)
	}
}

func FuzzCost(f *testing.F) {
	for _, seed := range []string{"0", "10", "-5", "+10", "008", "", "2147483648", "-0", "-01"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Cost(pod("a", cost(text)))
		exact, err := strconv.ParseInt(text, 10, 32)
		switch {
		case err != nil && got != 0:
			t.Errorf("%q is no 32-bit number and costs %d", text, got)
		case err == nil && strconv.FormatInt(exact, 10) == text && int64(got) != exact:
			t.Errorf("%q costs %d, want %d", text, got, exact)
		case err == nil && got != 0 && int64(got) != exact:
			t.Errorf("%q costs %d, want 0 or %d", text, got, exact)
		}
	})
}

func BenchmarkRanked5000(b *testing.B) {
	pods := make([]*v1.Pod, 5000)
	for i := range pods {
		pods[i] = randomPod(i)
	}
	for b.Loop() {
		Ranked(pods, func(p *v1.Pod) int { return len(p.Spec.NodeName) }, now, true)
	}
}

func names(pods []*v1.Pod) []string {
	out := make([]string, len(pods))
	for i, p := range pods {
		out[i] = p.Name
	}
	return out
}
