package deployment

import (
	"math"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestBounds(t *testing.T) {
	for name, test := range map[string]struct {
		d                       *appsv1.Deployment
		surge, unavailable      int32
		minAvailable, mostOfAll int64
	}{
		"surge is rounded up, unavailable down":    {rolling(10, "25%", "25%"), 3, 2, 8, 13},
		"one replica":                              {rolling(1, "25%", "25%"), 1, 0, 1, 2},
		"something must move":                      {rolling(2, "0", "1%"), 0, 1, 1, 2},
		"no more unavailable than there are":       {rolling(3, "0", "10"), 0, 3, 0, 3},
		"no replicas":                              {rolling(0, "3", "2"), 3, 0, 0, 0},
		"no replicas, percentages":                 {rolling(0, "25%", "25%"), 0, 0, 0, 0},
		"Recreate has none":                        {recreating(5), 0, 0, 5, 5},
		"no default is made up":                    {&appsv1.Deployment{}, 0, 0, 1, 1},
		"what the API server refuses counts as 0":  {rolling(4, "x", "-1"), 0, 1, 3, 4},
		"the sum of two large numbers is a number": {rolling(math.MaxInt32, "100%", "0"), math.MaxInt32, 0, math.MaxInt32, 2 * math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			b := boundsOf(test.d)
			if b.surge != test.surge || b.unavailable != test.unavailable {
				t.Errorf("surge %d, unavailable %d; want %d, %d", b.surge, b.unavailable, test.surge, test.unavailable)
			}
			if b.minAvailable() != test.minAvailable || b.maxTotal() != test.mostOfAll {
				t.Errorf("between %d and %d; want %d and %d", b.minAvailable(), b.maxTotal(), test.minAvailable, test.mostOfAll)
			}
		})
	}
}

func TestNewSize(t *testing.T) {
	b := bounds{replicas: 10, surge: 3, unavailable: 2}
	for name, test := range map[string]struct {
		strategy appsv1.DeploymentStrategyType
		current  int32
		total    int64
		want     int32
	}{
		"a beginning":                {appsv1.RollingUpdateDeploymentStrategyType, 0, 10, 3},
		"no room":                    {appsv1.RollingUpdateDeploymentStrategyType, 3, 13, 3},
		"too many already":           {appsv1.RollingUpdateDeploymentStrategyType, 3, 20, 3},
		"some room":                  {appsv1.RollingUpdateDeploymentStrategyType, 5, 11, 7},
		"not beyond the replicas":    {appsv1.RollingUpdateDeploymentStrategyType, 8, 9, 10},
		"nothing there":              {appsv1.RollingUpdateDeploymentStrategyType, 0, 0, 10},
		"Recreate makes all at once": {appsv1.RecreateDeploymentStrategyType, 0, 10, 10},
	} {
		t.Run(name, func(t *testing.T) {
			if got := b.newSize(test.strategy, test.current, test.total); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

func TestReplicaSetName(t *testing.T) {
	if got := replicaSetName("web", "abc"); got != "web-abc" {
		t.Error(got)
	}
	long := strings.Repeat("a", 253)
	if got := replicaSetName(long, "abc"); len(got) != 253 || !strings.HasSuffix(got, "a-abc") {
		t.Errorf("%d characters: %s", len(got), got)
	}
}
