package legacytokencleaner

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)

func token(age time.Duration, labels map[string]string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon.Add(-age)), Labels: labels},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
}

func TestTrackedFor(t *testing.T) {
	t.Parallel()
	tests := []struct {
		since    string
		period   time.Duration
		long, ok bool
	}{
		{"2026-05-15", 12 * time.Hour, true, true},
		{"2026-05-15", 36 * time.Hour, true, true},
		{"2026-05-15", 36*time.Hour + time.Nanosecond, false, true},
		{"2026-05-16", 12 * time.Hour, true, true},
		{"2026-05-16", 13 * time.Hour, false, true},
		{"2026-05-17", time.Second, false, true},
		{"2030-01-01", time.Second, false, true},
		{"", time.Second, false, false},
		{"soon", time.Second, false, false},
		{"2020-1-1", time.Second, false, false},
	}
	for _, test := range tests {
		if long, ok := trackedFor(test.since, noon, test.period); long != test.long || ok != test.ok {
			t.Errorf("since %q for %s: got %t, %t", test.since, test.period, long, ok)
		}
	}
}

func TestUnusedSince(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	opaque, deleted := token(300*day, nil), token(300*day, nil)
	opaque.Type = corev1.SecretTypeOpaque
	deleted.DeletionTimestamp = &metav1.Time{Time: noon}
	used := func(date string) *corev1.Secret { return token(300*day, map[string]string{lastUsedLabel: date}) }
	tests := []struct {
		name    string
		secret  *corev1.Secret
		unused  bool
		problem bool
	}{
		{"never used", token(300*day, nil), true, false},
		{"made within the period", token(99*day, nil), false, false},
		{"made at its beginning", token(100*day, nil), false, false},
		{"made just before", token(100*day+time.Second, nil), true, false},
		{"another type", opaque, false, false},
		{"being deleted", deleted, false, false},
		{"used today", used("2026-05-17"), false, false},
		{"used on the day at which the period began", used("2026-02-06"), false, false},
		{"used the day before", used("2026-02-05"), true, false},
		{"used on no date", used("yesterday"), false, true},
		{"used on a date of another form", used("2022-12-29-1"), false, true},
		{"used never, as an empty text", used(""), false, true},
	}
	for _, test := range tests {
		unused, problem := unusedSince(test.secret, limitOf(noon, 100*day))
		if unused != test.unused || (problem != "") != test.problem {
			t.Errorf("%s: got %t, problem %q", test.name, unused, problem)
		}
	}
}

func TestMarkOrRemove(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mark string
		want verdict
	}{
		{"", mark},
		{"bad", mark},
		{"2022-12-29-1", mark},
		{"2026-05-17", keep},
		{"2026-05-16", keep}, // the day at which the period began
		{"2026-05-15", remove},
	}
	for _, test := range tests {
		secret := token(0, map[string]string{invalidSinceLabel: test.mark})
		if got := markOrRemove(secret, limitOf(noon, 24*time.Hour)); got != test.want {
			t.Errorf("marked %q: got %d, want %d", test.mark, got, test.want)
		}
	}
	if got := markOrRemove(token(0, nil), limitOf(noon, time.Hour)); got != mark {
		t.Errorf("not marked: got %d", got)
	}
}

// FuzzDates: whatever is taken for a date is ordered as its text is.
func FuzzDates(f *testing.F) {
	f.Add("2026-05-17", "2020-01-02")
	f.Add("2022-12-29-1", "0001-01-01")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, ok := parseDate(a)
		y, ok2 := parseDate(b)
		if ok && ok2 && (a < b) != x.Before(y) {
			t.Errorf("%q and %q are ordered otherwise than their dates", a, b)
		}
	})
}

func TestVisitSecrets(t *testing.T) {
	t.Parallel()
	ref := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	from := func(name string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{{}, {SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *ref(name)}}}
	}
	env := func(name string) []corev1.EnvVar {
		return []corev1.EnvVar{{Value: "plain"}, {ValueFrom: &corev1.EnvVarSource{}}, {ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: *ref(name)},
		}}}
	}
	volume := func(source corev1.VolumeSource) corev1.Volume { return corev1.Volume{VolumeSource: source} }
	spec := corev1.PodSpec{
		ImagePullSecrets: []corev1.LocalObjectReference{*ref("pull")},
		InitContainers:   []corev1.Container{{EnvFrom: from("init-from"), Env: env("init-env")}},
		Containers:       []corev1.Container{{EnvFrom: from("from"), Env: env("env")}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			EnvFrom: from("ephemeral-from"), Env: env("ephemeral-env"),
		}}},
		Volumes: []corev1.Volume{
			volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
			volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret"}}),
			volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: *ref("no-secret")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: *ref("projected")}},
			}}}),
			volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: ref("csi")}}),
			volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}),
			volume(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "azure-file"}}),
			volume(corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: ref("ceph-fs")}}),
			volume(corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{SecretRef: ref("cinder")}}),
			volume(corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{SecretRef: ref("flex-volume")}}),
			volume(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: ref("rbd")}}),
			volume(corev1.VolumeSource{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: ref("scale-io")}}),
			volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: ref("iscsi")}}),
			volume(corev1.VolumeSource{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: ref("storage-os")}}),
		},
	}
	var got []string
	visitSecrets(&spec, func(name string) { got = append(got, name) })
	want := []string{
		"pull", "init-from", "init-env", "from", "env", "ephemeral-from", "ephemeral-env",
		"secret", "projected", "csi", "azure-file", "ceph-fs", "cinder", "flex-volume", "rbd", "scale-io", "iscsi", "storage-os",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
