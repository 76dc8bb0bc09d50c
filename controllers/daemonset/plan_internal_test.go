package daemonset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

var planNow = time.Unix(10000, 0)

// described makes the pods of a node. Each word is a pod, named by the node and
// the word's place: old or new, then any of ready, available, failed,
// succeeded, going (being deleted), stuck (going for long, for nobody to finish)
// and bound, joined by dashes.
func described(node, words string) []*v1.Pod {
	var pods []*v1.Pod
	for i, word := range strings.Fields(words) {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint(node, i), UID: types.UID(fmt.Sprint(node, i)), Labels: map[string]string{hashLabel: "old"},
			CreationTimestamp: metav1.NewTime(planNow.Add(time.Duration(i) * time.Second)),
		}}
		required(field(node))(&pod.Spec)
		for _, property := range strings.Split(word, "-") {
			since := planNow
			switch property {
			case "old":
			case "new":
				pod.Labels[hashLabel] = "new"
			case "available":
				since = planNow.Add(-time.Hour)
				fallthrough
			case "ready":
				pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
			case "failed":
				pod.Status.Phase = v1.PodFailed
			case "succeeded":
				pod.Status.Phase = v1.PodSucceeded
			case "going":
				pod.DeletionTimestamp = &metav1.Time{Time: planNow}
			case "stuck":
				pod.DeletionTimestamp = &metav1.Time{Time: planNow.Add(-time.Hour)}
			case "bound":
				pod.Spec.NodeName = node
			default:
				panic("unknown property " + property)
			}
		}
		pods = append(pods, pod)
	}
	return pods
}

// plannerOf nodes: each string is "NAME ELIGIBILITY: PODS", where ELIGIBILITY is
// run, stay, no, or gone for a node that does not exist. Pods must be available
// for a minute.
func plannerOf(nodes ...string) *planner {
	var existing []*v1.Node
	var pods []*v1.Pod
	eligible := map[string]eligibility{}
	for _, described1 := range nodes {
		head, words, _ := strings.Cut(described1, ":")
		name, kind, _ := strings.Cut(head, " ")
		pods = append(pods, described(name, words)...)
		switch kind {
		case "run":
			eligible[name] = eligibility{run: true, stay: true}
		case "stay":
			eligible[name] = eligibility{stay: true}
		}
		if kind != "gone" {
			existing = append(existing, testNode(name))
		}
	}
	rand.Shuffle(len(existing), func(i, j int) { existing[i], existing[j] = existing[j], existing[i] })
	rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	return &planner{
		survey:          newSurvey(existing, func(n *v1.Node) eligibility { return eligible[n.Name] }, pods),
		version:         version{hash: "new"},
		minReadySeconds: 60,
		now:             planNow,
		heldBack:        func(string) time.Duration { return 0 },
	}
}

// inWords says what a plan does: "+NODE" for a creation, "-POD" for a removal.
func (p plan) inWords() string {
	var words []string
	for _, node := range p.creations {
		words = append(words, "+"+node)
	}
	for _, r := range p.removals {
		words = append(words, "-"+r.pod.Name)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func TestSettleLooksAgainAfterDeletions(t *testing.T) {
	t.Parallel()
	if made := plannerOf("a run: old-going", "b run: new").settle(false); !made.isEmpty() || made.retryAfter != 5*time.Second {
		t.Errorf("plan %q, again after %s", made.inWords(), made.retryAfter)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, node string
		// want without surge, and with it.
		want, surging string
	}{
		{"no pod", "a run:", "+a", "+a"},
		{"no pod where one may only stay", "a stay:", "", ""},
		{"no pod where none may be", "a no:", "", ""},
		{"one pod", "a run: old", "", ""},
		{"one pod that may stay", "a stay: old", "", ""},
		{"one pod that must go", "a no: old new-going new-failed", "-a0 -a2", "-a0 -a2"},
		{"a pod that goes", "a run: old-going", "", "+a"},
		{"a pod that goes where one may only stay", "a stay: old-going", "", ""},
		{"a pod that goes, one that is there", "a run: old-going new", "", ""},
		{"a pod whose deletion was cut off", "a run: old-available-stuck", "-a0", "+a -a0"},
		{"a pod whose deletion was cut off, one that is there", "a run: old-stuck new", "-a0", "-a0"},
		{"a pod whose deletion was cut off where none may be", "a no: old-stuck", "-a0", "-a0"},
		{"a pod that its kubelet ends", "a run: old-stuck-bound", "", "+a"},
		{"two pods", "a run: new new", "-a1", "-a1"},
		{"the bound one of two", "a run: new new-bound", "-a0", "-a0"},
		{"old and new", "a run: old-ready new", "-a1", ""},
		{"old and new, old not ready", "a run: old new", "-a1", "-a0"},
		{"old and new, new ready", "a run: old-available new-ready", "-a1", ""},
		{"old and new, new available", "a run: old-available new-available", "-a1", "-a0"},
		{"two old and two new", "a run: old-available old-available new new", "-a1 -a2 -a3", "-a1 -a3"},
		{"failed", "a run: new-failed", "-a0", "+a -a0"},
		{"succeeded", "a run: new-succeeded", "-a0", "+a -a0"},
		{"failed beside a good one", "a run: new-failed new", "-a0", "-a0"},
		{"failed where it may only stay", "a stay: new-failed", "-a0", "-a0"},
		{"failed and held by a finalizer", "a run: new-failed-going", "+a", "+a"},
		{"meant for a node that is gone", "a gone: new new-going new-bound", "-a0", "-a0"},
	} {
		p := plannerOf(test.node)
		if got := p.settle(false).inWords(); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		if got := p.settle(true).inWords(); got != test.surging {
			t.Errorf("%s, with surge: %q, want %q", test.name, got, test.surging)
		}
	}
}

func TestSettleHoldsFailedPodsBack(t *testing.T) {
	t.Parallel()
	p := plannerOf("a run: new-failed", "b run: new-failed", "c run: new-succeeded", "d run: new-failed new")
	p.heldBack = func(node string) time.Duration {
		return map[string]time.Duration{"a": 2 * time.Second, "d": time.Second}[node]
	}
	for surging, want := range map[bool]string{false: "-b0 -c0", true: "+b +c -b0 -c0"} {
		made := p.settle(surging)
		if made.inWords() != want || made.retryAfter != time.Second {
			t.Errorf("surging %t: %q after %s, want %q", surging, made.inWords(), made.retryAfter, want)
		}
		for _, r := range made.removals {
			if !r.finished {
				t.Errorf("surging %t: the removal of %s is not told of", surging, r.pod.Name)
			}
		}
	}
}

func TestRollInPlace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name           string
		maxUnavailable int
		nodes          []string
		want           string
	}{
		{"the first of all", 1, []string{"a run: old-available", "b run: old-available", "c run: old-available"}, "-a0"},
		{"as many as may be", 2, []string{"c run: old-available", "b run: old-available", "a run: old-available"}, "-a0 -b0"},
		{"all", 9, []string{"a run: old-available", "b run: old-available"}, "-a0 -b0"},
		{"not while a new one is not available", 1, []string{"a run: old-available", "b run: new-ready"}, ""},
		{"when it is", 1, []string{"a run: old-available", "b run: new-available"}, "-a0"},
		{"not while one goes", 1, []string{"a run: old-available", "b run: old-going"}, ""},
		{"one that goes where none is wanted does not count", 1, []string{"a run: old-available", "b no: old-going"}, "-a0"},
		{"what is no use in any case", 1, []string{"a run: old", "b run: old-available", "c run: old-ready"}, "-a0 -c0"},
		{"what is no use leaves the rest of the bound", 3, []string{"a run: old", "b run: old-available", "c run: old-ready", "d run: old-available"},
			"-a0 -b0 -c0"},
		{"none when two are there", 1, []string{"a run: old-available new-available", "b run: old-available"}, ""},
		{"none when two old are there", 1, []string{"a run: old-available old-available", "b run: old-available"}, ""},
		{"what may only stay", 1, []string{"a stay: old-available", "b run: new-available"}, "-a0"},
		{"a node that is gone does not count", 1, []string{"a gone: old-bound", "b run: old-available"}, "-b0"},
		{"nothing to be done", 1, []string{"a run: new-available", "b run: new"}, ""},
	} {
		if got := plannerOf(test.nodes...).roll(bounds{maxUnavailable: test.maxUnavailable}).inWords(); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	// Of 20 pods 10 are not ready: exactly these go, although three may.
	var nodes []string
	var want []string
	for i := range 20 {
		name := fmt.Sprintf("n%02d-", i)
		if i%2 == 0 {
			nodes = append(nodes, name+" run: old")
			want = append(want, "-"+name+"0")
		} else {
			nodes = append(nodes, name+" run: old-available")
		}
	}
	if got := plannerOf(nodes...).roll(bounds{maxUnavailable: 3}).inWords(); got != strings.Join(want, " ") {
		t.Errorf("ten of twenty: %q", got)
	}
}

func TestRollWithSurge(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		maxSurge int
		nodes    []string
		want     string
	}{
		{"the first of all", 1, []string{"a run: old-available", "b run: old-available"}, "+a"},
		{"as many as may be", 2, []string{"a run: old-available", "b run: old-available", "c run: old-available"}, "+a +b"},
		{"not while one surges", 1, []string{"a run: old-available new-ready", "b run: old-available"}, ""},
		{"the old one goes", 1, []string{"a run: old-available new-available", "b run: old-available"}, "+b -a0"},
		{"what is no use in any case", 1, []string{"a run: old", "b run: old-ready", "c run: old-available"}, "+a +b +c"},
		{"what is no use and may only stay", 1, []string{"a stay: old", "b run: new-available"}, "-a0"},
		{"what may only stay, not enough others", 1, []string{"a stay: old-available", "b run: new", "c run: new-available"}, ""},
		{"what may only stay, enough others", 1, []string{"a stay: old-available", "b run: new-available", "c run: new-available"}, "-a0"},
		{"as many as there are enough others", 1, []string{"a stay: old-available", "b stay: old-available", "c run: new-available", "d run: new"},
			"-a0"},
		{"two old ones count as a surge", 1, []string{"a run: old-available old-available", "b run: old-available"}, ""},
		{"a node that is gone", 1, []string{"a gone: old-bound", "b run: new-available"}, ""},
		{"nothing to be done", 1, []string{"a run: new-available", "b run: new"}, ""},
	} {
		if got := plannerOf(test.nodes...).roll(bounds{maxSurge: test.maxSurge}).inWords(); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		unavailable, surge string
		desired            int
		want               bounds
		surges             bool
	}{
		{"1", "0", 5, bounds{1, 0}, false},
		{"30%", "0", 5, bounds{2, 0}, false},
		{"100%", "0", 5, bounds{5, 0}, false},
		{"0", "1", 5, bounds{0, 1}, true},
		{"0", "10%", 5, bounds{0, 1}, true},
		{"0", "50%", 5, bounds{0, 3}, true},
		{"0%", "0%", 5, bounds{1, 0}, false},
		{"30%", "0", 0, bounds{0, 0}, false},
	} {
		ds := template()
		ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDaemonSet{
				MaxUnavailable: ptr.To(intstr.Parse(test.unavailable)), MaxSurge: ptr.To(intstr.Parse(test.surge)),
			},
		}
		got, err := boundsOf(ds, test.desired)
		if err != nil || got != test.want {
			t.Errorf("%s and %s of %d: %+v, %v", test.unavailable, test.surge, test.desired, got, err)
		}
		if got, err := surges(ds); err != nil || got != test.surges {
			t.Errorf("%s and %s: surges %t, %v", test.unavailable, test.surge, got, err)
		}
		ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		if got, err := surges(ds); err != nil || got {
			t.Errorf("on deletion: surges %t, %v", got, err)
		}
	}
	ds := template()
	ds.Spec.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	ds.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
	if got, err := boundsOf(ds, 5); err != nil || got != (bounds{1, 0}) {
		t.Errorf("no surge given: %+v, %v", got, err)
	}
	ds.Spec.UpdateStrategy.RollingUpdate.MaxSurge = ptr.To(intstr.FromString("much"))
	if _, err := boundsOf(ds, 5); err == nil {
		t.Error("a surge of much was taken")
	}
}
