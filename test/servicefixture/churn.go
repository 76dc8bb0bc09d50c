package servicefixture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// Sizes of a Churn.
const (
	churnServices = 40
	churnPods     = 10
	// churnRounds are how many pods of each Service are replaced.
	churnRounds = 4
)

// Churn replaces the pods of many Services one by one, changes selectors and
// nodes, and knows what the endpoints should list meanwhile.
type Churn struct {
	w       *World
	listing *Listing
	random  *rand.Rand
	// pods of each Service by name, and which track they are on.
	pods [churnServices][]string
	made int
	// narrow are the Services that select one track only, with the pod that is not on it.
	narrow [churnServices]string
	// slowest write of this test, which tells how fast the machine is.
	slowest time.Duration
}

// NewChurn makes Services and pods, on node n1. What they list is followed.
func NewChurn(w *World, listing *Listing) *Churn {
	w.T.Helper()
	seed := rand.Uint64()
	w.T.Logf("churn with seed %d", seed)
	c := &Churn{w: w, listing: listing, random: rand.New(rand.NewPCG(seed, 0))}
	for i := range churnServices {
		w.MakeService(name(i))
	}
	w.MakePods(churnServices*churnPods, func(n int) (string, string, []string) {
		return podName(n%churnServices, n), name(n % churnServices), podIP(n)
	})
	for n := range churnServices * churnPods {
		i := n % churnServices
		c.pods[i] = append(c.pods[i], podName(i, n))
		listing.Want(name(i), podName(i, n))
	}
	c.made = churnServices * churnPods
	return c
}

func name(service int) string { return fmt.Sprint("web-", service) }

func podName(service, number int) string { return fmt.Sprint(name(service), "-", number) }

func podIP(number int) []string { return []string{fmt.Sprintf("10.1.%d.%d", number/200, 1+number%200)} }

// timed runs a write and remembers how long the slowest took.
func (c *Churn) timed(write func()) {
	began := time.Now()
	write()
	c.slowest = max(c.slowest, time.Since(began))
}

func (c *Churn) add(i int) {
	c.w.T.Helper()
	pod := podName(i, c.made)
	c.timed(func() { c.w.MakePod(pod, name(i), podIP(c.made)) })
	c.made++
	c.pods[i] = append(c.pods[i], pod)
	c.listing.Want(name(i), pod)
}

// Run replaces pods of all Services, and changes other things in between.
func (c *Churn) Run() {
	c.w.T.Helper()
	zone := 0
	for step := range churnServices * churnRounds {
		i := step % churnServices
		c.replace(i)
		switch c.random.IntN(20) {
		case 0, 1:
			c.reselect(c.random.IntN(churnServices))
		case 2:
			c.flip(c.random.IntN(churnServices))
		case 3:
			zone++
			c.timed(func() {
				c.w.ChangeNode("n1", func(node *v1.Node) { node.Labels[v1.LabelTopologyZone] = fmt.Sprint("z", zone) })
			})
		case 4:
			c.timed(func() { c.w.MakeNode(fmt.Sprint("extra", step), "a") })
			c.timed(func() {
				c.w.must(c.w.Admin.CoreV1().Nodes().Delete(c.w.T.Context(), c.w.Node(fmt.Sprint("extra", step)), metav1.DeleteOptions{}))
			})
		}
	}
	for i := range churnServices {
		if c.narrow[i] != "" {
			c.reselect(i)
		}
	}
}

// replace the oldest pod, as a rollout does: the new one is ready before the old one goes.
func (c *Churn) replace(i int) {
	c.w.T.Helper()
	c.add(i)
	old := c.pods[i][0]
	c.pods[i] = c.pods[i][1:]
	c.listing.Unwant(name(i), old)
	if c.random.IntN(2) == 0 {
		c.timed(func() { c.w.DeletePod(old) })
	}
	c.timed(func() { c.w.RemovePod(old) })
}

// flip lets a pod be not ready for a moment.
func (c *Churn) flip(i int) {
	c.w.T.Helper()
	pod := c.pods[i][c.random.IntN(len(c.pods[i]))]
	if pod == c.narrow[i] {
		return
	}
	c.listing.Unwant(name(i), pod)
	c.timed(func() { c.w.SetPodStatus(pod, Ready(false)) })
	c.timed(func() { c.w.SetPodStatus(pod, Ready(true)) })
	c.listing.Want(name(i), pod)
}

// reselect narrows or widens a selector; while it is narrow, one pod is not selected.
func (c *Churn) reselect(i int) {
	c.w.T.Helper()
	track := func(to string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels[trackLabel] = to } }
	if left := c.narrow[i]; left != "" {
		c.narrow[i] = ""
		c.timed(func() { c.w.ChangeService(name(i), func(s *v1.Service) { delete(s.Spec.Selector, trackLabel) }) })
		if slices.Contains(c.pods[i], left) { // it may have been replaced
			c.listing.Want(name(i), left)
			c.timed(func() { c.w.ChangePod(left, track(firstTrack)) })
		}
		return
	}
	pod := c.pods[i][len(c.pods[i])-1]
	c.narrow[i] = pod
	c.listing.Unwant(name(i), pod)
	c.timed(func() { c.w.ChangePod(pod, track("second")) })
	c.timed(func() { c.w.ChangeService(name(i), func(s *v1.Service) { s.Spec.Selector[trackLabel] = firstTrack }) })
}

// leftOut is how long a ready pod may be left out, on a machine that is fast enough.
const leftOut = 2 * time.Second

// Check waits until the listing is right, and wants that no ready pod was left
// out for long: two seconds, and longer only where the machine was slow.
func (c *Churn) Check() {
	c.w.T.Helper()
	harness.Eventually(c.w.T, Soon, "the right endpoints", func(context.Context) error { return c.listing.Wrong() })
	longest, worst := c.listing.Longest()
	c.w.T.Logf("%s was left out for %s, the slowest write of the test took %s", worst, longest, c.slowest)
	if limit := leftOut + 10*c.slowest; longest > limit {
		c.w.T.Errorf("%s was left out for %s, more than %s", worst, longest, limit)
	}
}
