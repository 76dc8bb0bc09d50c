package endpoints

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Services that an API server stored before it knew of families have none.
func TestFamilyOf(t *testing.T) {
	t.Parallel()
	const v4, v6 = v1.IPv4Protocol, v1.IPv6Protocol
	for _, test := range []struct {
		families         []v1.IPFamily
		clusterIP, podIP string
		want             v1.IPFamily
	}{
		{[]v1.IPFamily{v6, v4}, "10.0.0.1", "10.1.0.1", v6},
		{[]v1.IPFamily{v4, v6}, "fd00::1", "fd01::1", v4},
		{nil, "10.0.0.1", "10.1.0.1", v4},
		{nil, "10.0.0.1", "fd01::1", v4},
		{nil, "fd00::1", "10.1.0.1", v6},
		{nil, "fd00::1", "fd01::1", v6},
		{nil, "", "10.1.0.1", v4},
		{nil, "", "fd01::1", v6},
		{nil, v1.ClusterIPNone, "10.1.0.1", v4},
		{nil, v1.ClusterIPNone, "fd01::1", v6},
		{[]v1.IPFamily{}, v1.ClusterIPNone, "", v4},
	} {
		service := &v1.Service{Spec: v1.ServiceSpec{IPFamilies: test.families, ClusterIP: test.clusterIP}}
		pod := &v1.Pod{Status: v1.PodStatus{PodIP: test.podIP}}
		if got := familyOf(service, pod); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}
