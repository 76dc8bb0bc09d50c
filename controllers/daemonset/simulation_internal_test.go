package daemonset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// simulation is a cluster in which pods get ready and go away when they like.
type simulation struct {
	random *rand.Rand
	nodes  []*v1.Node
	run    map[string]bool
	pods   []*v1.Pod
	made   int
}

func (s *simulation) planner() *planner {
	return &planner{
		survey: newSurvey(s.nodes, func(n *v1.Node) eligibility { return eligibility{run: s.run[n.Name], stay: s.run[n.Name]} },
			slices.Clone(s.pods)),
		version:  version{hash: "new"},
		now:      planNow,
		heldBack: func(string) time.Duration { return 0 },
	}
}

func (s *simulation) create(node, hash string) *v1.Pod {
	s.made++
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint("p", s.made), UID: types.UID(fmt.Sprint(s.made)), Labels: map[string]string{hashLabel: hash},
		CreationTimestamp: metav1.NewTime(planNow.Add(time.Duration(s.made) * time.Second)),
	}}
	required(field(node))(&pod.Spec)
	s.pods = append(s.pods, pod)
	return pod
}

// step acts as the controller does, and returns what it did.
func (s *simulation) step(b bounds) plan {
	p := s.planner()
	made := p.settle(b.maxSurge > 0)
	if made.isEmpty() {
		made = p.roll(b)
	}
	for _, node := range made.creations {
		s.create(node, "new")
	}
	for _, r := range made.removals {
		r.pod.DeletionTimestamp = &metav1.Time{Time: planNow}
	}
	return made
}

// live acts as kubelets do, on one random pod. It returns false when all is quiet.
func (s *simulation) live() bool {
	if len(s.pods) == 0 {
		return false
	}
	for offset, i := s.random.IntN(len(s.pods)), 0; i < len(s.pods); i++ {
		at := (offset + i) % len(s.pods)
		switch pod := s.pods[at]; {
		case pod.DeletionTimestamp != nil:
			s.pods = slices.Delete(s.pods, at, at+1)
			return true
		case len(pod.Status.Conditions) == 0:
			getReady(pod)
			return true
		}
	}
	return false
}

func getReady(pod *v1.Pod) {
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(planNow)}}
}

// Whatever the order in which pods get ready and go away: a roll-out keeps its
// bounds at every step, replaces every pod exactly once, and comes to its end.
func TestRollOutsKeepTheirBounds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		s := &simulation{random: rand.New(rand.NewPCG(seed, 0)), run: map[string]bool{}}
		desired := 1 + s.random.IntN(12)
		for i := range desired + s.random.IntN(3) {
			node := testNode(fmt.Sprintf("n%02d", i))
			s.nodes = append(s.nodes, node)
			if s.run[node.Name] = i < desired; s.run[node.Name] {
				getReady(s.create(node.Name, "old"))
			}
		}
		b := bounds{maxUnavailable: 1 + s.random.IntN(desired)}
		if s.random.IntN(2) == 0 {
			b = bounds{maxSurge: 1 + s.random.IntN(desired)}
		}
		for steps := 0; ; steps++ {
			if steps > 1000 {
				t.Fatalf("seed %d, %+v: no end", seed, b)
			}
			acted := !s.step(b).isEmpty() // a quiet moment between two reconciles is possible, too
			s.check(t, seed, b, desired)
			lived := false
			for range s.random.IntN(4) {
				lived = s.live() || lived
			}
			s.check(t, seed, b, desired)
			if !acted && !lived && !s.live() && s.step(b).isEmpty() {
				break
			}
		}
		if s.made != 2*desired || len(s.pods) != desired {
			t.Errorf("seed %d, %+v: %d pods made for %d nodes, %d left", seed, b, s.made, desired, len(s.pods))
		}
		for _, pod := range s.pods {
			if pod.Labels[hashLabel] != "new" {
				t.Errorf("seed %d, %+v: an old pod is left", seed, b)
			}
		}
	}
}

func (s *simulation) check(t *testing.T, seed uint64, b bounds, desired int) {
	t.Helper()
	live, available, surging := map[string]int{}, map[string]bool{}, 0
	for _, pod := range s.pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		node := targetNode(pod)
		if live[node]++; live[node] == 2 {
			surging++
		}
		if len(pod.Status.Conditions) > 0 {
			available[node] = true
		}
		if live[node] > 2 || live[node] > 1 && b.maxSurge == 0 {
			t.Fatalf("seed %d, %+v: %d live pods on %s", seed, b, live[node], node)
		}
	}
	if surging > b.maxSurge || len(available) < desired-b.maxUnavailable {
		t.Fatalf("seed %d, %+v: %d nodes with two pods, %d of %d with an available one", seed, b, surging, len(available), desired)
	}
}

// One reconcile on a big cluster that has nothing to do.
func BenchmarkSurveyOf5000Nodes(b *testing.B) {
	c := &daemonSetController{}
	ds := template(required(expression("color", "In", "blue")))
	var nodes []*v1.Node
	var pods []*v1.Pod
	for i := range 5000 {
		node := testNode(fmt.Sprint("n", i), tainted(v1.TaintNodeUnschedulable, "", v1.TaintEffectNoSchedule))
		nodes = append(nodes, node)
		pods = append(pods, described(node.Name, "new-available")...)
	}
	rand.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] }) // as the cache returns them
	c.logger = discard
	for b.Loop() {
		placement := c.placementOf(ds)
		p := &planner{survey: newSurvey(slices.Clone(nodes), placement.of, pods), version: version{hash: "new"}, now: planNow}
		if made := p.settle(false); !made.isEmpty() {
			b.Fatal(made.inWords())
		}
		if made := p.roll(bounds{maxUnavailable: 1}); !made.isEmpty() {
			b.Fatal(made.inWords())
		}
		if counted := p.count(ds); counted.available != 5000 {
			b.Fatal(counted)
		}
	}
}
