package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

const (
	bigServicePods  = 5_000
	changesPerSec   = 50
	churnSeconds    = 20
	manyServices    = 1_000
	podsPerService  = 5
	endpointNode    = "endpoints"
	sliceManager    = "endpointslice-controller.k8s.io"
	servicesWithin  = 3 * time.Minute
	servicesPolling = 100 * time.Millisecond
)

// makeEndpointNode makes the node of pods whose status the benchmark writes itself.
func makeEndpointNode(b *testing.B, client kubernetes.Interface) {
	b.Helper()
	_, err := client.CoreV1().Nodes().Create(b.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: endpointNode, Labels: map[string]string{corev1.LabelTopologyZone: "a"}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
}

func makeService(ctx context.Context, client kubernetes.Interface, namespace, name string) error {
	_, err := client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	return err
}

// makeEndpoint makes a ready pod with an address of its own.
func makeEndpoint(ctx context.Context, client kubernetes.Interface, namespace, app string, i int) (*corev1.Pod, error) {
	pod, err := client.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("%s-%d", app, i),
			Labels: map[string]string{"app": app, "app.kubernetes.io/part-of": "bench", "pod-template-hash": "54f4c57dcb"},
		},
		Spec: corev1.PodSpec{NodeName: endpointNode, Containers: []corev1.Container{{Name: "c", Image: "example.com/app:1"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	ip := fmt.Sprintf("10.%d.%d.%d", 1+i/62_500, i/250%250, 1+i%250)
	pod.Status.PodIP, pod.Status.PodIPs = ip, []corev1.PodIP{{IP: ip}}
	return setReady(ctx, client, pod, true)
}

// setReady writes the status of a pod, whatever it is now.
func setReady(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, ready bool) (*corev1.Pod, error) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.ResourceVersion = ""
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
	return client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
}

// listed counts the endpoints of all Services of a namespace, and the ready ones among them.
func listed(ctx context.Context, client kubernetes.Interface, namespace string) (all, ready int, err error) {
	list, err := client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelManagedBy + "=" + sliceManager,
	})
	if err != nil {
		return 0, 0, err
	}
	for i := range list.Items {
		for j := range list.Items[i].Endpoints {
			all++
			if ptr.Deref(list.Items[i].Endpoints[j].Conditions.Ready, false) {
				ready++
			}
		}
	}
	return all, ready, nil
}

func awaitListed(b *testing.B, client kubernetes.Interface, namespace string, wantAll, wantReady int) {
	b.Helper()
	within(b, servicesWithin, servicesPolling, "all endpoints listed", func(ctx context.Context) (bool, error) {
		all, ready, err := listed(ctx, client, namespace)
		if err == nil && (all != wantAll || ready != wantReady) {
			err = fmt.Errorf("%d endpoints are listed, %d of them ready", all, ready)
		}
		return err == nil, err
	})
}

// One large Service whose pods change all the time. The time is that from the
// last change until it is listed.
func BenchmarkBigService(b *testing.B) {
	var pods []*corev1.Pod
	compareWork(b, workload{
		what: fmt.Sprintf("a Service of %d pods, %d changes a second for %d s", bigServicePods, changesPerSec, churnSeconds),
		prepare: func(b *testing.B, client kubernetes.Interface, namespace string) {
			b.Helper()
			makeEndpointNode(b, client)
			pods = make([]*corev1.Pod, bigServicePods)
			inParallel(b, bigServicePods, func(ctx context.Context, i int) (err error) {
				pods[i], err = makeEndpoint(ctx, client, namespace, "big", i)
				return err
			})
			if err := makeService(b.Context(), client, namespace, "big"); err != nil {
				b.Fatal(err)
			}
			awaitListed(b, client, namespace, bigServicePods, bigServicePods)
		},
		run: func(b *testing.B, client kubernetes.Interface, namespace string) time.Time {
			b.Helper()
			tick := time.NewTicker(time.Second / changesPerSec)
			defer tick.Stop()
			for i := range changesPerSec * churnSeconds {
				<-tick.C
				if _, err := setReady(b.Context(), client, pods[i*7%bigServicePods], false); err != nil {
					b.Fatal(err)
				}
			}
			since := time.Now()
			awaitListed(b, client, namespace, bigServicePods, bigServicePods-changesPerSec*churnSeconds)
			return since
		},
	})
}

// measureServices measures from the start of the program until the endpoints of
// all Services are listed, and what it needed by then.
func measureServices(
	b *testing.B, name string, match func(auditv1.Event) bool, start func(*testing.B, *controlplane.ControlPlane) program,
) requests {
	b.Helper()
	var r requests
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			cp, client := controlPlane(b, controlplane.Options{})
			namespace := cp.Namespace(b)
			makeEndpointNode(b, client)
			inParallel(b, manyServices*podsPerService, func(ctx context.Context, i int) error {
				_, err := makeEndpoint(ctx, client, namespace, fmt.Sprintf("web-%d", i/podsPerService), i)
				return err
			})
			inParallel(b, manyServices, func(ctx context.Context, i int) error {
				return makeService(ctx, client, namespace, fmt.Sprintf("web-%d", i))
			})
			from, err := cp.Audit().Position()
			if err != nil {
				b.Fatal(err)
			}
			if _, err := binary(); err != nil {
				b.Fatal(err) // built here, or the time would include it
			}
			since := time.Now()
			p := start(b, cp)
			awaitListed(b, client, namespace, manyServices*podsPerService, manyServices*podsPerService)
			took := time.Since(since)
			r = awaitQuiet(b, cp, from, match)
			r.took = took
			if r.usage, err = measure(p.PID()); err != nil {
				b.Fatal(err)
			}
		}
	})
	return r
}

// Services that were made while nobody looked after their endpoints.
func BenchmarkServicesAtStart(b *testing.B) {
	ours, theirs := inTurn(
		func() requests {
			return measureServices(b, "daemon", func(e auditv1.Event) bool { return isDaemon(e.UserAgent) },
				func(b *testing.B, cp *controlplane.ControlPlane) program { b.Helper(); return startDaemon(b, cp) })
		},
		func() requests {
			return measureServices(b, "peer", controlplane.FromPeer,
				func(b *testing.B, cp *controlplane.ControlPlane) program {
					b.Helper()
					return startPeer(b, cp, withoutLimits...)
				})
		},
	)
	compare(fmt.Sprintf("start among %d Services × %d pods without endpoints; peer without limits", manyServices, podsPerService), ours, theirs)
	results.write(b)
}
