package client

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

func serverBuilder(t *testing.T, cp *controlplane.ControlPlane, o Options, user string, groups ...string) *Builder {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cp.WriteKubeconfig(path, user, groups...); err != nil {
		t.Fatal(err)
	}
	o.Kubeconfig = path
	return newBuilder(t, o)
}

// Every kind of write is answered by the real API server in the form that is read here.
func TestMarksAreTheVersionsThatTheServerAnswers(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	n := cp.Namespace(t)
	for _, contentType := range []string{"application/vnd.kubernetes.protobuf", "application/json"} {
		b := serverBuilder(t, cp, Options{ContentType: contentType}, "admin", "system:masters")
		clients, marks, err := b.For("c", "")
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		check := func(what string, resource schema.GroupResource, object metav1.Object, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if got, want := marks.Snapshot()[resource], object.GetResourceVersion(); got == "" || got != want {
				t.Errorf("%s as %s: mark %q, the object's version is %q", what, contentType, got, want)
			}
		}
		unchanged := func(what string, f func() error) {
			t.Helper()
			before := marks.Snapshot()
			if err := f(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if !maps.Equal(before, marks.Snapshot()) {
				t.Errorf("%s as %s: marks %v became %v", what, contentType, before, marks.Snapshot())
			}
		}

		core := clients.Kubernetes.CoreV1()
		spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		named := func(prefix string) metav1.ObjectMeta { return metav1.ObjectMeta{GenerateName: prefix} }
		pod, err := core.Pods(n).Create(ctx, &corev1.Pod{ObjectMeta: named("p-"), Spec: spec}, metav1.CreateOptions{})
		check("create", pods, pod, err)
		pod.Labels = map[string]string{"a": "b"}
		pod, err = core.Pods(n).Update(ctx, pod, metav1.UpdateOptions{})
		check("update", pods, pod, err)
		pod.Status.Message = "m"
		pod, err = core.Pods(n).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		check("update of the status", pods, pod, err)
		pod, err = core.Pods(n).Patch(ctx, pod.Name, types.StrategicMergePatchType,
			[]byte(`{"metadata":{"labels":{"a":"c"}}}`), metav1.PatchOptions{})
		check("patch", pods, pod, err)
		partial, err := clients.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(n).
			Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"d"}}}`), metav1.PatchOptions{})
		check("patch of metadata", pods, partial, err)
		unchanged("dry run", func() error {
			_, err := core.Pods(n).Patch(ctx, pod.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"e"}}}`),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		})
		unchanged("binding", func() error {
			return core.Pods(n).Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name},
				Target: corev1.ObjectReference{Kind: "Node", Name: "none"}}, metav1.CreateOptions{})
		})
		unchanged("eviction", func() error {
			return core.Pods(n).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: n},
				DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](30)}})
		})

		// A pod's deletion is answered with the pod, as it was when it was deleted.
		current, err := core.Pods(n).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := core.Pods(n).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
			t.Fatal(err)
		}
		if got := marks.Snapshot()[pods]; len(got) < len(current.ResourceVersion) || got <= current.ResourceVersion {
			t.Errorf("mark %q of a pod's deletion, want one after %q", got, current.ResourceVersion)
		}

		configMap, err := core.ConfigMaps(n).Create(ctx, &corev1.ConfigMap{ObjectMeta: named("c-")}, metav1.CreateOptions{})
		check("create", schema.GroupResource{Resource: "configmaps"}, configMap, err)
		unchanged("deletion that is answered with a Status", func() error {
			return core.ConfigMaps(n).Delete(ctx, configMap.Name, metav1.DeleteOptions{})
		})
		unchanged("deletion of a collection", func() error {
			return core.ConfigMaps(n).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "none"})
		})
		account, err := core.ServiceAccounts(n).Create(ctx, &corev1.ServiceAccount{ObjectMeta: named("s-")}, metav1.CreateOptions{})
		check("create", schema.GroupResource{Resource: "serviceaccounts"}, account, err)
		unchanged("token", func() error {
			_, err := core.ServiceAccounts(n).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
			return err
		})

		labels := map[string]string{"a": "b"}
		deployment, err := clients.Kubernetes.AppsV1().Deployments(n).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "d-"},
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}},
		}, metav1.CreateOptions{})
		check("create", deployments, deployment, err)
		scale, err := clients.Kubernetes.AppsV1().Deployments(n).GetScale(ctx, deployment.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		scale.Spec.Replicas = 1
		scale, err = clients.Kubernetes.AppsV1().Deployments(n).UpdateScale(ctx, deployment.Name, scale, metav1.UpdateOptions{})
		check("scale", deployments, scale, err)

		namespace, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: named("marks-")}, metav1.CreateOptions{})
		check("create", schema.GroupResource{Resource: "namespaces"}, namespace, err)
		namespace.Spec.Finalizers = nil
		namespace, err = core.Namespaces().Finalize(ctx, namespace, metav1.UpdateOptions{})
		check("finalize", schema.GroupResource{Resource: "namespaces"}, namespace, err)
	}
}

func TestMarksOfCustomResources(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	n := cp.Namespace(t)
	things := schema.GroupVersionResource{Group: "wheelhouse.example.com", Version: "v1", Resource: "things"}
	definitions, err := apiextensions.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: things.GroupResource().String()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: things.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true)}},
			}},
		},
	}
	_, err = definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), crd, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := serverBuilder(t, cp, Options{}, "admin", "system:masters")
	clients, _, err := b.For("c", "")
	if err != nil {
		t.Fatal(err)
	}
	marks := NewMarks()
	ctx := WithMarks(t.Context(), marks)
	thing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "wheelhouse.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"},
		"spec": map[string]any{"metadata": map[string]any{"resourceVersion": "1"}},
	}}
	var created *unstructured.Unstructured
	eventually(t, "the custom resource is served", func() error {
		created, err = clients.Dynamic.Resource(things).Namespace(n).Create(ctx, thing, metav1.CreateOptions{})
		return err
	})
	if got := marks.Snapshot()[things.GroupResource()]; got != created.GetResourceVersion() {
		t.Errorf("mark %q, the object's version is %q", got, created.GetResourceVersion())
	}
	patched, err := clients.Metadata.Resource(things).Namespace(n).
		Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := marks.Snapshot()[things.GroupResource()]; got != patched.ResourceVersion {
		t.Errorf("mark %q, the object's version is %q", got, patched.ResourceVersion)
	}
}

// The daemon's own identity may do little under RBAC, and each controller what its role says.
func TestControllersActAsTheirServiceAccounts(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	n := cp.Namespace(t)
	fence := NewFence(nil)
	b := serverBuilder(t, cp, Options{UseServiceAccountCredentials: true, Fence: fence}, "system:kube-controller-manager")
	from, err := cp.Audit().Position()
	if err != nil {
		t.Fatal(err)
	}
	// Not an account that another test uses.
	const account = "ttl-after-finished-controller"
	const user = "system:serviceaccount:kube-system:" + account
	clients, _, err := b.For(account, account)
	if err != nil {
		t.Fatal(err)
	}
	if err := getPodIn(t.Context(), clients, n); !errors.Is(err, ErrFenced) {
		t.Errorf("on a standby: error %v, want ErrFenced", err)
	}
	fence.OpenAlways()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			review, err := clients.Kubernetes.AuthenticationV1().SelfSubjectReviews().
				Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
			} else if got := review.Status.UserInfo.Username; got != user {
				t.Errorf("acts as %s, want %s", got, user)
			}
		})
	}
	all.Wait()
	if _, err := clients.Kubernetes.BatchV1().Jobs(n).Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get a job: error %v, want not found, which its role allows to see", err)
	}
	if _, err := clients.Kubernetes.CoreV1().Secrets(n).Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("get a secret: error %v, want forbidden", err)
	}
	ours := func(verb, subresource string) func(auditv1.Event) bool {
		return func(e auditv1.Event) bool {
			return e.Verb == verb && e.ObjectRef != nil && e.ObjectRef.Name == account && e.ObjectRef.Subresource == subresource
		}
	}
	eventually(t, "the audit log has all requests", func() error {
		tokens, err := cp.Audit().Requests(from, ours("create", "token"))
		if err != nil {
			return err
		}
		if len(tokens) != 1 {
			return errors.New("not one token request")
		}
		if tokens[0].User.Username != "system:kube-controller-manager" {
			return errors.New("asked for by " + tokens[0].User.Username)
		}
		return nil
	})
	agents, err := cp.Audit().Requests(from, func(e auditv1.Event) bool { return e.User.Username == user })
	if err != nil || len(agents) == 0 {
		t.Fatalf("%d requests by %s, %v", len(agents), user, err)
	}
	for _, e := range agents {
		if !strings.HasSuffix(e.UserAgent, "/"+user) {
			t.Errorf("user agent %q, want it to end with %s", e.UserAgent, user)
		}
	}
}

func getPodIn(ctx context.Context, c Clients, namespace string) error {
	_, err := c.Kubernetes.CoreV1().Pods(namespace).Get(ctx, "none", metav1.GetOptions{})
	return err
}

func TestAnotherIdentityIsTakenUpWhileRunning(t *testing.T) {
	t.Parallel()
	cp := controlplane.Shared(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	use := func(user string) {
		t.Helper()
		if err := cp.WriteKubeconfig(path, user, "system:masters"); err != nil {
			t.Fatal(err)
		}
	}
	use("first")
	b := newBuilder(t, Options{Kubeconfig: path})
	client, err := kubernetes.NewForConfig(b.Root("test"))
	if err != nil {
		t.Fatal(err)
	}
	who := func() string {
		t.Helper()
		review, err := client.AuthenticationV1().SelfSubjectReviews().
			Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return review.Status.UserInfo.Username
	}
	if got := who(); got != "first" {
		t.Errorf("acts as %s, want first", got)
	}
	watch, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	use("second")
	reload(t, b, true)
	if got := who(); got != "second" {
		t.Errorf("acts as %s, want second", got)
	}
	deadline := time.After(soon)
	for open := true; open; {
		select {
		case event, ok := <-watch.ResultChan():
			if open = ok; ok && event.Type == "ERROR" {
				t.Errorf("the watch ended with an error: %v", event.Object)
			}
		case <-deadline:
			t.Fatal("the watch goes on with the old identity")
		}
	}
}

func TestWriteToAFrozenServerIsCancelledAtTheDeadline(t *testing.T) {
	t.Parallel()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	fence := NewFence(nil)
	b := serverBuilder(t, cp, Options{Fence: fence}, "admin", "system:masters")
	clients, _, err := b.For("c", "")
	if err != nil {
		t.Fatal(err)
	}
	create := func() error {
		_, err := clients.Kubernetes.CoreV1().ConfigMaps("default").
			Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
		return err
	}
	fence.OpenAlways()
	if err := create(); err != nil {
		t.Fatal(err)
	}
	if err := cp.APIServer.Pause(); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	fence.Extend(start.Add(2 * time.Second))
	err = create()
	if took := time.Since(start); !errors.Is(err, ErrFenced) || took < 2*time.Second {
		t.Errorf("error %v after %s, want ErrFenced after 2s", err, took)
	}
	if err := create(); !errors.Is(err, ErrFenced) {
		t.Errorf("error %v, want ErrFenced", err)
	}
	if err := cp.APIServer.Resume(); err != nil {
		t.Fatal(err)
	}
	fence.OpenAlways()
	eventually(t, "a write succeeds again", create)
}

// soon is ample for what must come on a busy machine.
const soon = 2 * time.Minute

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, soon, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v; %v", what, err, last)
	}
}
