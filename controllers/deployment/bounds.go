package deployment

import (
	"math"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// bounds are how many pods a rollout may have: between minAvailable available
// ones and replicas + surge in all.
type bounds struct {
	replicas    int32
	surge       int32
	unavailable int32
}

// boundsOf resolves maxSurge, in percent of the replicas rounded up, and
// maxUnavailable, rounded down. If both come to nothing, one pod may be
// unavailable, since the rollout could not move otherwise.
func boundsOf(d *appsv1.Deployment) bounds {
	b := bounds{replicas: replicasOf(d.Spec.Replicas)}
	if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return b
	}
	b.surge = b.resolve(d.Spec.Strategy.RollingUpdate, true)
	if b.replicas == 0 {
		return b
	}
	b.unavailable = b.resolve(d.Spec.Strategy.RollingUpdate, false)
	if b.surge == 0 && b.unavailable == 0 {
		b.unavailable = 1
	}
	b.unavailable = min(b.unavailable, b.replicas)
	return b
}

// resolve returns maxSurge or maxUnavailable as a number of pods; a value that
// cannot be read, which the API server refuses, is 0.
func (b bounds) resolve(update *appsv1.RollingUpdateDeployment, surge bool) int32 {
	if update == nil {
		return 0
	}
	value := update.MaxUnavailable
	if surge {
		value = update.MaxSurge
	}
	pods, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(value, intstr.FromInt32(0)), int(b.replicas), surge)
	if err != nil || pods < 0 {
		return 0
	}
	return int32(min(pods, math.MaxInt32))
}

func (b bounds) minAvailable() int64 { return int64(b.replicas) - int64(b.unavailable) }

// maxTotal is the most pods at any time; 0 when no replicas are wanted.
func (b bounds) maxTotal() int64 {
	if b.replicas == 0 {
		return 0
	}
	return int64(b.replicas) + int64(b.surge)
}

// newSize is how large the new ReplicaSet, now of size current, may be when all
// ReplicaSets together have total replicas.
func (b bounds) newSize(strategy appsv1.DeploymentStrategyType, current int32, total int64) int32 {
	if strategy != appsv1.RollingUpdateDeploymentStrategyType {
		return b.replicas
	}
	room := int64(b.replicas) + int64(b.surge) - total
	if room <= 0 {
		return current
	}
	return current + int32(min(room, int64(b.replicas)-int64(current)))
}
