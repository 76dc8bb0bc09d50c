package servicefixture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/test/apiproxy"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// size of a Churn.
type size struct{ services, pods int }

const (
	// churnRounds are how many pods of each Service are replaced.
	churnRounds = 4
	// churnRestarts and churnResizes of the controller meanwhile.
	churnRestarts = 60
	churnResizes  = 20
)

// sizeOf a Churn: that of a small cluster, or of a larger one if the environment
// variable SCALE is full, for which make test-scale has the time.
func sizeOf() size {
	if os.Getenv("SCALE") == "full" {
		return size{services: 200, pods: 25}
	}
	return size{services: 40, pods: 10}
}

// Churn replaces the pods of many Services one by one, changes selectors and
// nodes, and knows what the endpoints should list meanwhile.
type Churn struct {
	w       *World
	listing *Listing
	random  *rand.Rand
	// pods of each Service by name.
	pods [][]string
	made int
	// narrow are the Services that select one track only, with the pod that is not on it.
	narrow []string
}

// NewChurn makes Services and pods, on node n1. What they list is followed.
func NewChurn(w *World, listing *Listing) *Churn {
	w.T.Helper()
	seed := rand.Uint64()
	size := sizeOf()
	w.T.Logf("churn of %d Services × %d pods with seed %d", size.services, size.pods, seed)
	c := &Churn{
		w: w, listing: listing, random: rand.New(rand.NewPCG(seed, 0)),
		pods: make([][]string, size.services), narrow: make([]string, size.services),
	}
	for i := range size.services {
		w.MakeService(name(i))
	}
	c.made = size.services * size.pods
	w.MakePods(c.made, func(n int) (string, string, []string) {
		return podName(n%size.services, n), name(n % size.services), podIP(n)
	})
	for n := range c.made {
		i := n % size.services
		c.pods[i] = append(c.pods[i], podName(i, n))
		listing.Want(name(i), podName(i, n))
	}
	return c
}

func name(service int) string { return fmt.Sprint("web-", service) }

func podName(service, number int) string { return fmt.Sprint(name(service), "-", number) }

func podIP(number int) []string { return []string{fmt.Sprintf("10.1.%d.%d", number/200, 1+number%200)} }

func (c *Churn) add(i int) {
	c.w.T.Helper()
	pod := podName(i, c.made)
	c.w.MakePod(pod, name(i), podIP(c.made))
	c.made++
	c.pods[i] = append(c.pods[i], pod)
	c.listing.Want(name(i), pod)
}

// Run replaces pods of all Services, and changes other things in between, while
// the controller restarts and is resized at random moments. They are spread over
// the steps, so that a slow machine does not get more of them in the same time.
func (c *Churn) Run(controller *harness.Instance) {
	c.w.T.Helper()
	steps := len(c.pods) * churnRounds
	disturbances := map[int][]func(){}
	disturb := func(count int, do func()) {
		for range count {
			at := c.random.IntN(steps)
			disturbances[at] = append(disturbances[at], do)
		}
	}
	disturb(churnRestarts, controller.Restart)
	for range churnResizes {
		workers := 1 + c.random.IntN(10)
		disturb(1, func() { controller.Resize(workers) })
	}
	due, done := make(chan func(), churnRestarts+churnResizes), make(chan struct{})
	go func() {
		defer close(done)
		for do := range due {
			do()
		}
	}()
	defer func() {
		close(due)
		<-done
		controller.Resize(5)
	}()
	zone := 0
	for step := range steps {
		for _, do := range disturbances[step] {
			due <- do
		}
		i := step % len(c.pods)
		c.replace(i)
		switch c.random.IntN(20) {
		case 0, 1:
			c.reselect(c.random.IntN(len(c.pods)))
		case 2:
			c.flip(c.random.IntN(len(c.pods)))
		case 3:
			zone++
			c.w.ChangeNode("n1", func(node *v1.Node) { node.Labels[v1.LabelTopologyZone] = fmt.Sprint("z", zone) })
		case 4:
			c.w.MakeNode(fmt.Sprint("extra", step), "a")
			c.w.must(c.w.Admin.CoreV1().Nodes().Delete(c.w.T.Context(), c.w.Node(fmt.Sprint("extra", step)), metav1.DeleteOptions{}))
		}
	}
	for i := range c.pods {
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
		c.w.DeletePod(old)
	}
	c.w.RemovePod(old)
}

// flip lets a pod be not ready for a moment.
func (c *Churn) flip(i int) {
	c.w.T.Helper()
	pod := c.pods[i][c.random.IntN(len(c.pods[i]))]
	if pod == c.narrow[i] {
		return
	}
	c.listing.Unwant(name(i), pod)
	c.w.SetPodStatus(pod, Ready(false))
	c.w.SetPodStatus(pod, Ready(true))
	c.listing.Want(name(i), pod)
}

// reselect narrows or widens a selector; while it is narrow, one pod is not selected.
func (c *Churn) reselect(i int) {
	c.w.T.Helper()
	track := func(to string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels[trackLabel] = to } }
	if left := c.narrow[i]; left != "" {
		c.narrow[i] = ""
		c.w.ChangeService(name(i), func(s *v1.Service) { delete(s.Spec.Selector, trackLabel) })
		if slices.Contains(c.pods[i], left) { // it may have been replaced
			c.listing.Want(name(i), left)
			c.w.ChangePod(left, track(firstTrack))
		}
		return
	}
	pod := c.pods[i][len(c.pods[i])-1]
	c.narrow[i] = pod
	c.listing.Unwant(name(i), pod)
	c.w.ChangePod(pod, track("second"))
	c.w.ChangeService(name(i), func(s *v1.Service) { s.Spec.Selector[trackLabel] = firstTrack })
}

// leftOut is how long a ready pod may be left out, by the clock of the work that
// the machine gets done.
const leftOut = 2 * time.Second

// lateSteps are the watches and requests that may each be late, one after the
// other, before a pod is listed: restarts read and wait for several of them.
const lateSteps = 20

// Check waits until the listing is right, and wants that no ready pod was left out for long.
func (c *Churn) Check() {
	c.w.T.Helper()
	harness.Eventually(c.w.T, Soon, "the right endpoints", func(context.Context) error { return c.listing.Wrong() })
	longest := c.listing.leftOut()
	c.w.T.Logf("%s/%s was left out for %s, of which the machine had time for %s", longest.service, longest.pod, longest.wall, longest.work)
	late, err := apiproxy.Lag()
	c.w.must(err)
	if most := leftOut + lateSteps*late; longest.work > most {
		c.w.T.Errorf("%s/%s was left out for %s (%s on the wall), more than %s",
			longest.service, longest.pod, longest.work, longest.wall, most)
	}
}
