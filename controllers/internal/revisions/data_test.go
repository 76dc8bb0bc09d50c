package revisions_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	"github.com/wheelhouse-project/wheelhouse/controllers/internal/revisions"
	"github.com/wheelhouse-project/wheelhouse/controllers/internal/templatehash"
)

// known is the data of template in every release that encodes as k8s.io/api 0.37.
const known = `{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"web"}},"spec":{"containers":[` +
	`{"image":"registry.k8s.io/pause:3.10","imagePullPolicy":"IfNotPresent","name":"c","resources":{},` +
	`"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"dnsPolicy":"ClusterFirst",` +
	`"restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}}}`

func template() *v1.PodTemplateSpec {
	t := &v1.PodTemplateSpec{
		Spec: v1.PodSpec{
			Containers: []v1.Container{{
				Name:                     "c",
				Image:                    "registry.k8s.io/pause:3.10",
				ImagePullPolicy:          v1.PullIfNotPresent,
				TerminationMessagePath:   v1.TerminationMessagePathDefault,
				TerminationMessagePolicy: v1.TerminationMessageReadFile,
			}},
			DNSPolicy:                     v1.DNSClusterFirst,
			RestartPolicy:                 v1.RestartPolicyAlways,
			SchedulerName:                 v1.DefaultSchedulerName,
			SecurityContext:               &v1.PodSecurityContext{},
			TerminationGracePeriodSeconds: ptr.To[int64](30),
		},
	}
	t.Labels = map[string]string{"app": "web"}
	return t
}

func dataOf(t *testing.T, template *v1.PodTemplateSpec) []byte {
	t.Helper()
	data, err := revisions.Data(template)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAcceptance01_DataAndHashAreThoseOfThePeer(t *testing.T) {
	t.Parallel()
	data := dataOf(t, template())
	if string(data) != known {
		t.Errorf("data is\n%s, want\n%s", data, known)
	}
	if hash := revisions.HashData(data, 0); hash != "6b7ccbcc74" {
		t.Errorf("hash is %s", hash)
	}
	if hash := revisions.HashData(data, 1); hash != "6b7ccbcc75" {
		t.Errorf("hash after a collision is %s", hash)
	}
	if name := revisions.Name("web", "6b7ccbcc74"); name != "web-6b7ccbcc74" {
		t.Errorf("name is %s", name)
	}
}

func TestAcceptance02_DaemonSetHash(t *testing.T) {
	t.Parallel()
	if hash := templatehash.Compute(template(), nil); hash != "7b679cb5d9" {
		t.Errorf("hash is %s", hash)
	}
}

func TestDataEscapesAndKeepsNumbers(t *testing.T) {
	t.Parallel()
	changed := template()
	changed.Spec.Containers[0].Command = []string{"a<b>&c"}
	changed.Spec.Tolerations = []v1.Toleration{{TolerationSeconds: ptr.To[int64](1<<53 + 1)}}
	data := string(dataOf(t, changed))
	for _, want := range []string{`["a\u003cb\u003e\u0026c"]`, `"tolerationSeconds":9007199254740993}`} {
		if !strings.Contains(data, want) {
			t.Errorf("no %s in %s", want, data)
		}
	}
}

// The data is a patch that gives any owner the template, as `kubectl rollout undo` does it.
func TestDataRestoresTheTemplate(t *testing.T) {
	t.Parallel()
	other := template()
	other.Labels["more"] = "labels"
	other.Spec.Containers = append(other.Spec.Containers, v1.Container{Name: "d"})
	live, err := json.Marshal(&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{ServiceName: "kept", Template: *other}})
	if err != nil {
		t.Fatal(err)
	}
	restored, err := strategicpatch.StrategicMergePatch(live, dataOf(t, template()), appsv1.StatefulSet{})
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.StatefulSet
	if err := json.Unmarshal(restored, &set); err != nil {
		t.Fatal(err)
	}
	if set.Spec.ServiceName != "kept" || string(dataOf(t, &set.Spec.Template)) != known {
		t.Errorf("restored %s", restored)
	}
	read, err := revisions.Template([]byte(known))
	if err != nil || string(dataOf(t, read)) != known {
		t.Errorf("Template returns %v, %v", read, err)
	}
}

func TestAcceptance09_OlderEncodingIsTheSameTemplate(t *testing.T) {
	t.Parallel()
	data := dataOf(t, template())
	tests := []struct {
		name, stored string
		want         bool
	}{
		{"same bytes", known, true},
		{"creationTimestamp null", strings.Replace(known, `"metadata":{`, `"metadata":{"creationTimestamp":null,`, 1), true},
		{"another order of keys", strings.Replace(known, `{"$patch":"replace","metadata":{"labels":{"app":"web"}},`,
			`{"metadata":{"labels":{"app":"web"}},"$patch":"replace",`, 1), true},
		{"another image", strings.Replace(known, "3.10", "3.9", 1), false},
		{"a field less", strings.Replace(known, `"dnsPolicy":"ClusterFirst",`, "", 1), false},
		{"no template", `{"spec":{}}`, false},
		{"not JSON", `{`, false},
		{"wrong types", `{"spec":{"template":{"spec":[]}}}`, false},
		{"empty", ``, false},
		{"null", `null`, false},
	}
	for _, test := range tests {
		if got := revisions.SameTemplate([]byte(test.stored), data); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}

// Graces and tolerations "for ever" are beyond what a float holds exactly.
func TestRoundedNumbersAreTheSameTemplate(t *testing.T) {
	t.Parallel()
	for number, peer := range map[int64]string{
		1<<53 + 1:     "9007199254740992",
		1 << 60:       "1152921504606847000",
		math.MaxInt64: "9223372036854776000",
	} {
		changed := template()
		changed.Spec.TerminationGracePeriodSeconds = &number
		data := dataOf(t, changed)
		stored := strings.Replace(known, `Seconds":30`, `Seconds":`+peer, 1)
		if !revisions.SameTemplate([]byte(stored), data) {
			t.Errorf("%d is not the same as %s", number, peer)
		}
		if revisions.SameTemplate([]byte(known), data) {
			t.Errorf("%d is the same as 30", number)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add([]byte(known))
	f.Add([]byte(`{"spec":{"template":{"$patch":"replace"}}}`))
	f.Add([]byte(`{"spec":{"template":null}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		read, err := revisions.Template(data)
		if err != nil {
			return
		}
		// What can be read can be written, and that is stable from then on.
		first, err := revisions.Data(read)
		if err != nil {
			t.Fatal(err)
		}
		again, err := revisions.Template(first)
		if err != nil {
			t.Fatal(err)
		}
		second, err := revisions.Data(again)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s, then %s", first, second)
		}
	})
}
