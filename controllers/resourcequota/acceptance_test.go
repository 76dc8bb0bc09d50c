package resourcequota_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// together are the scenarios that share one controller, which sees the whole of
// a cluster of its own and recounts only when it starts.
var together = map[string]func(w *world){
	"01_ANewQuotaIsCounted":                     acceptance01,
	"02_WhatAPodRequestsIsUsedUntilItIsDeleted": acceptance02,
	"03_AFinishedPodIsCountedOnly":              acceptance03,
	"04_ServicesByType":                         acceptance04,
	"05_StorageByClass":                         acceptance05,
	"06_CustomResourcesAreCounted":              acceptance06,
	"07_ScopesTerminatingAndNotTerminating":     acceptance07,
	"08_OtherScopesOfPods":                      acceptance08,
	"09_StatusFollowsOtherLimits":               acceptance09,
	"14_NeverMoreThanAllowed":                   acceptance14,
	"17_DevicesOfClaims":                        acceptance17,
	"ADeviceClassMakesClaimsCount":              lateDeviceClass,
	"AResizeIsCountedWhenItsNodeHasDecided":     resize,
	"AUsageAboveTheLimitStays":                  usageAboveTheLimit,
	"ResourcesOfAPodAsAWhole":                   podAsAWhole,
	"StorageIsRoundedUpToBytes":                 fractionsOfBytes,
}

func TestAcceptance(t *testing.T) {
	t.Parallel()
	cp := ownControlPlane(t, controlplane.Options{})
	shared := inWorld(t, cp, harness.Options{WholeCluster: true, DiscoveryInterval: time.Second})
	shared.start(0)
	for name, scenario := range together {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(shared.another(t, cp))
		})
	}
}

func acceptance01(w *world) {
	w.quota("q", amounts{"pods": "5", "services": "5", "configmaps": "10", "requests.cpu": "1"})
	w.used("q", amounts{"pods": "0", "services": "0", "configmaps": "0", "requests.cpu": "0"})
}

func acceptance02(w *world) {
	w.quota("q", amounts{
		"cpu": "1", "requests.cpu": "1", "memory": "1Gi", "requests.memory": "1Gi", "pods": "5", "count/pods": "5",
		"ephemeral-storage": "50Gi", "requests.ephemeral-storage": "50Gi", "requests.example.com/dongle": "3",
	})
	dongles := amounts{"cpu": "500m", "memory": "252Mi", "ephemeral-storage": "30Gi", "example.com/dongle": "2"}
	w.pod("p", requesting(dongles), limited(amounts{"example.com/dongle": "2"}))
	w.used("q", amounts{
		"cpu": "500m", "requests.cpu": "500m", "memory": "252Mi", "requests.memory": "252Mi", "pods": "1", "count/pods": "1",
		"ephemeral-storage": "30Gi", "requests.ephemeral-storage": "30Gi", "requests.example.com/dongle": "2",
	})
	w.deletePod("p")
	w.used("q", amounts{
		"cpu": "0", "requests.cpu": "0", "memory": "0", "requests.memory": "0", "pods": "0", "count/pods": "0",
		"ephemeral-storage": "0", "requests.ephemeral-storage": "0", "requests.example.com/dongle": "0",
	})
}

func acceptance03(w *world) {
	w.quota("q", amounts{"pods": "5", "count/pods": "5", "requests.cpu": "1", "limits.memory": "1Gi"})
	p := w.pod("p", requesting(amounts{"cpu": "500m", "memory": "1Mi"}), limited(amounts{"memory": "252Mi"}))
	w.used("q", amounts{"pods": "1", "count/pods": "1", "requests.cpu": "500m", "limits.memory": "252Mi"})
	w.setPhase(p, corev1.PodSucceeded)
	w.used("q", amounts{"pods": "0", "count/pods": "1", "requests.cpu": "0", "limits.memory": "0"})
}

func acceptance04(w *world) {
	w.quota("q", amounts{"services": "5", "count/services": "5", "services.nodeports": "5", "services.loadbalancers": "5"})
	services := w.client.CoreV1().Services(w.ns)
	node, err := services.Create(w.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{
			{Name: "a", Port: 80}, {Name: "b", Port: 81},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.used("q", amounts{"services": "1", "count/services": "1", "services.nodeports": "2", "services.loadbalancers": "0"})
	balancer, err := services.Create(w.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "balancer"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, AllocateLoadBalancerNodePorts: ptr.To(false), Ports: []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.used("q", amounts{"services": "2", "count/services": "2", "services.nodeports": "2", "services.loadbalancers": "1"})

	// A port less frees a node port, too.
	node.Spec.Ports = node.Spec.Ports[:1]
	if node, err = services.Update(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.used("q", amounts{"services.nodeports": "1"})
	node.Spec.Type = corev1.ServiceTypeClusterIP
	node.Spec.Ports[0].NodePort = 0
	if _, err := services.Update(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.used("q", amounts{"services": "2", "services.nodeports": "0", "services.loadbalancers": "1"})
	balancer.Spec.Type, balancer.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeClusterIP, nil
	if _, err := services.Update(w.t.Context(), balancer, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.used("q", amounts{"services": "2", "count/services": "2", "services.loadbalancers": "0"})
}

func acceptance05(w *world) {
	w.quota("q", amounts{
		"requests.storage": "10Gi", "persistentvolumeclaims": "5", "count/persistentvolumeclaims": "5",
		"gold.storageclass.storage.k8s.io/requests.storage":       "5Gi",
		"gold.storageclass.storage.k8s.io/persistentvolumeclaims": "5",
		"lead.storageclass.storage.k8s.io/persistentvolumeclaims": "5",
	})
	claims := w.client.CoreV1().PersistentVolumeClaims(w.ns)
	_, err := claims.Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("gold"),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: amounts{"storage": "1Gi"}.list()},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.used("q", amounts{
		"requests.storage": "1Gi", "persistentvolumeclaims": "1", "count/persistentvolumeclaims": "1",
		"gold.storageclass.storage.k8s.io/requests.storage":       "1Gi",
		"gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
		"lead.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
	})
	if err := claims.Delete(w.t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	// The API server protects claims that may be in use; nobody else does it here.
	if _, err := claims.Patch(w.t.Context(), "c", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		w.t.Log(err) // it was not protected
	}
	w.used("q", amounts{
		"requests.storage": "0", "persistentvolumeclaims": "0", "count/persistentvolumeclaims": "0",
		"gold.storageclass.storage.k8s.io/requests.storage":       "0",
		"gold.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
	})
}

func acceptance07(w *world) {
	w.quota("ends", amounts{"pods": "5"}, scoped(corev1.ResourceQuotaScopeTerminating))
	w.quota("stays", amounts{"pods": "5"}, scoped(corev1.ResourceQuotaScopeNotTerminating))
	p := w.pod("long")
	w.used("stays", amounts{"pods": "1"})
	w.used("ends", amounts{"pods": "0"})
	w.pod("short", deadline(3600))
	w.used("ends", amounts{"pods": "1"})
	w.used("stays", amounts{"pods": "1"})

	// A pod that gets a deadline changes over.
	p.Spec.ActiveDeadlineSeconds = ptr.To[int64](3600)
	if _, err := w.client.CoreV1().Pods(w.ns).Update(w.t.Context(), p, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.used("ends", amounts{"pods": "2"})
	w.used("stays", amounts{"pods": "0"})
	w.deletePod("short")
	w.used("ends", amounts{"pods": "1"})
}

func acceptance08(w *world) {
	high := "quota-high"
	_, err := w.client.SchedulingV1().PriorityClasses().Create(w.t.Context(),
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: high}, Value: 1000}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := w.client.SchedulingV1().PriorityClasses().Delete(context.Background(), high, metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
	hard := amounts{"pods": "9"}
	w.quota("best-effort", hard, scoped(corev1.ResourceQuotaScopeBestEffort))
	w.quota("not-best-effort", hard, scoped(corev1.ResourceQuotaScopeNotBestEffort))
	w.quota("in", hard, selecting(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpIn, high))
	w.quota("not-in", hard, selecting(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpNotIn, high))
	w.quota("exists", hard, selecting(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpExists))
	w.quota("does-not-exist", hard, selecting(corev1.ResourceQuotaScopePriorityClass, corev1.ScopeSelectorOpDoesNotExist))
	w.quota("cross", hard, scoped(corev1.ResourceQuotaScopeCrossNamespacePodAffinity))
	expect := func(counts map[string]string) {
		w.t.Helper()
		for name, n := range counts {
			w.used(name, amounts{"pods": n})
		}
	}
	w.pod("plain")
	expect(map[string]string{
		"best-effort": "1", "not-best-effort": "0", "in": "0", "not-in": "1", "exists": "0", "does-not-exist": "1", "cross": "0",
	})
	w.pod("important", requesting(amounts{"cpu": "1m"}), func(p *corev1.Pod) { p.Spec.PriorityClassName = high })
	expect(map[string]string{
		"best-effort": "1", "not-best-effort": "1", "in": "1", "not-in": "1", "exists": "1", "does-not-exist": "1", "cross": "0",
	})
	w.pod("crossing", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "zone", NamespaceSelector: &metav1.LabelSelector{}},
			}},
		}}
	})
	expect(map[string]string{
		"best-effort": "2", "not-best-effort": "1", "in": "1", "not-in": "2", "exists": "1", "does-not-exist": "2", "cross": "1",
	})
	w.deletePod("important")
	w.deletePod("crossing")
	expect(map[string]string{
		"best-effort": "1", "not-best-effort": "0", "in": "0", "not-in": "1", "exists": "0", "does-not-exist": "1", "cross": "0",
	})
}

func acceptance09(w *world) {
	w.pod("a")
	w.pod("b")
	w.configMap("m")
	w.quota("q", amounts{"pods": "5"})
	w.used("q", amounts{"pods": "2"})
	for _, hard := range []amounts{{"pods": "7"}, {"pods": "1"}, {"pods": "1", "configmaps": "3"}, {"configmaps": "3"}} {
		w.change("q", func(q *corev1.ResourceQuota) { q.Spec.Hard = hard.list() })
		w.counted("q")
		want := amounts{}
		for name, n := range (amounts{"pods": "2", "configmaps": "1"}) {
			if _, ok := hard[name]; ok {
				want[name] = n
			}
		}
		w.used("q", want)
	}
}

func TestAcceptance10_WithoutAPeriodThereIsNoRecount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(time.Second)
	w.instance.ApplyLive(section(0))
	w.pod("p")
	w.quota("q", amounts{"pods": "5"})
	w.used("q", amounts{"pods": "1"})
	// A new quota is counted twice, and charges have it counted, but not for ever.
	harness.Eventually(t, soon, "end of the counts", func(ctx context.Context) error {
		w.falsify("q", amounts{"pods": "0"})
		return w.remains(ctx, "q", amounts{"pods": "0"})
	})
	w.instance.ApplyLive(section(time.Second))
	w.used("q", amounts{"pods": "1"})
}

func TestAcceptance15_WhatWentWhileStoppedIsGivenBack(t *testing.T) {
	t.Parallel()
	w := running(t)
	w.quota("q", amounts{"pods": "5"})
	for _, name := range []string{"a", "b", "c", "d"} {
		w.pod(name)
	}
	w.used("q", amounts{"pods": "4"}) // which the API server may not have charged at once
	w.instance.Stop()
	for _, name := range []string{"a", "b", "c"} {
		w.deletePod(name)
	}
	if err := w.shows(t.Context(), "q", amounts{"pods": "4"}); err != nil {
		t.Error(err)
	}
	w.instance.Start()
	w.used("q", amounts{"pods": "1"})
}

func TestAcceptance15_NoKeyIsLostWhenWorkersChange(t *testing.T) {
	t.Parallel()
	w := running(t)
	const quotas = 8
	for i := range quotas {
		w.create(fmt.Sprint("q-", i), amounts{"count/configmaps": "100"})
	}
	for i := range 40 {
		w.instance.Resize([]int{5, 1, 8}[i%3])
		name := fmt.Sprint("m-", i)
		harness.Eventually(t, soon, "config map "+name, func(ctx context.Context) error {
			_, err := w.client.CoreV1().ConfigMaps(w.ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		})
		if i%2 == 0 {
			w.deleteConfigMap(name)
		}
	}
	for i := range quotas {
		w.used(fmt.Sprint("q-", i), amounts{"count/configmaps": "20"})
	}
}

func TestAcceptance16_APodThatDoesNotGoIsNotChargedForEver(t *testing.T) {
	t.Parallel()
	w := running(t)
	w.quota("q", amounts{"pods": "5", "count/pods": "5", "requests.cpu": "1"})
	w.pod("stuck", requesting(amounts{"cpu": "500m"}), func(p *corev1.Pod) { p.Spec.NodeName = "nowhere" })
	err := w.client.CoreV1().Pods(w.ns).Delete(t.Context(), "stuck", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](2)})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := w.client.CoreV1().Pods(w.ns).Get(t.Context(), "stuck", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// No recount is needed; and a restart between changes nothing.
	w.instance.Restart()
	release := pod.DeletionTimestamp.Add(2 * time.Second)
	harness.Eventually(t, soon, "release", func(ctx context.Context) error {
		asked := time.Now()
		err := w.shows(ctx, "q", amounts{"pods": "0", "count/pods": "1", "requests.cpu": "0"})
		if err == nil && asked.Before(release) && time.Now().Before(release) {
			t.Fatalf("it was not charged any more at %s, before %s", asked, release)
		}
		return err
	})
}

// One cluster serves both, since nothing else runs on it.
func TestAcceptance13And18_WhatIsNotServedStopsNothingElse(t *testing.T) {
	t.Parallel()
	cp := ownControlPlane(t, controlplane.Options{
		AuthorizationMode: "RBAC", APIServerArgs: []string{"--runtime-config=resource.k8s.io/v1=false"},
	})
	w := inWorld(t, cp, harness.Options{DiscoveryInterval: time.Second})
	w.start(0)
	w.quota("q", amounts{"pods": "5"})
	w.create("claims", amounts{"pods": "5", "c.deviceclass.resource.k8s.io/devices": "5", "count/resourceclaims.resource.k8s.io": "5"})
	w.pod("p")
	w.used("q", amounts{"pods": "1"})
	w.used("claims", amounts{"pods": "1"})
	w.deletePod("p")
	w.used("q", amounts{"pods": "0"})
	w.used("claims", amounts{"pods": "0"})
	if status := w.get("claims").Status; len(status.Used) != 1 {
		t.Errorf("claims are counted although there can be none: %+v", status)
	}
	if last := w.instance.Work().LastError; last != "" {
		t.Errorf("the controller has trouble: %s", last)
	}
	brokenGroup(w)
}

func usageAboveTheLimit(w *world) {
	w.pod("a", requesting(amounts{"cpu": "900m"}))
	w.quota("q", amounts{"requests.cpu": "100m"})
	w.used("q", amounts{"requests.cpu": "900m"})
	harness.Eventually(w.t, soon, "refusal of a pod above the limit", func(ctx context.Context) error {
		more := newPod("b", requesting(amounts{"cpu": "1m"}))
		_, err := w.client.CoreV1().Pods(w.ns).Create(ctx, more, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !refused(err) {
			return fmt.Errorf("it is answered with %w", err)
		}
		return nil
	})
}

func fractionsOfBytes(w *world) {
	w.quota("q", amounts{"requests.storage": "10Gi"})
	_, err := w.client.CoreV1().PersistentVolumeClaims(w.ns).Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1000500m")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.used("q", amounts{"requests.storage": "1001"})
	// The controller's own count says the same.
	w.change("q", func(q *corev1.ResourceQuota) { q.Spec.Hard = amounts{"requests.storage": "11Gi"}.list() })
	w.counted("q")
	w.used("q", amounts{"requests.storage": "1001"})
}
