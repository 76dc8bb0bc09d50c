package deployment

import (
	"maps"
	"math"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestProportions(t *testing.T) {
	type sizes map[string]int32
	for name, test := range map[string]struct {
		d *appsv1.Deployment
		// before are sizes by name, "c" the oldest, "new" the youngest.
		before sizes
		most   string // annotation of all, none if empty
		status int32
		after  sizes
	}{
		"up":                       {rolling(10, "0", "1"), sizes{"new": 2, "b": 3}, "5", 5, sizes{"new": 4, "b": 6}},
		"down":                     {rolling(8, "0", "1"), sizes{"new": 2, "b": 8, "c": 3}, "13", 13, sizes{"new": 1, "b": 5, "c": 2}},
		"the youngest gets one":    {rolling(4, "0", "1"), sizes{"new": 1, "b": 1, "c": 1}, "3", 3, sizes{"new": 2, "b": 1, "c": 1}},
		"the oldest loses one":     {rolling(2, "0", "1"), sizes{"new": 1, "b": 1, "c": 1}, "3", 3, sizes{"new": 1, "b": 1, "c": 0}},
		"a small one may lose all": {rolling(4, "0", "1"), sizes{"new": 8, "b": 1}, "9", 9, sizes{"new": 4, "b": 0}},
		"surge is scaled too":      {rolling(30, "3", "2"), sizes{"new": 5, "b": 8}, "13", 13, sizes{"new": 13, "b": 20}},
		"surge in another bound":   {rolling(120, "20", "0"), sizes{"new": 20, "b": 100}, "120", 120, sizes{"new": 23, "b": 117}},
		"to nothing":               {rolling(0, "3", "2"), sizes{"new": 5, "b": 8}, "13", 13, sizes{"new": 0, "b": 0}},
		"nothing to add":           {rolling(5, "0", "1"), sizes{"new": 2, "b": 3}, "9", 9, sizes{"new": 2, "b": 3}},
		"the status stands in":     {rolling(10, "0", "1"), sizes{"new": 2, "b": 3}, "", 5, sizes{"new": 4, "b": 6}},
		"also for nonsense":        {rolling(10, "0", "1"), sizes{"new": 2, "b": 3}, "-5", 5, sizes{"new": 4, "b": 6}},
		"also for zero":            {rolling(10, "0", "1"), sizes{"new": 2, "b": 3}, "0", 5, sizes{"new": 4, "b": 6}},
		"no former size at all":    {rolling(10, "0", "1"), sizes{"new": 2, "b": 3}, "", 0, sizes{"new": 2, "b": 8}},
	} {
		t.Run(name, func(t *testing.T) {
			test.d.Status.Replicas = test.status
			var sets []*appsv1.ReplicaSet
			for i, name := range []string{"new", "b", "c"} {
				size, ok := test.before[name]
				if !ok {
					continue
				}
				rs := set(name, i, size, 0)
				if test.most != "" {
					rs = annotatedSet(rs, maxReplicasAnnotation, test.most)
				}
				sets = append(sets, rs)
			}
			r := newRollout(test.d, sets...)
			got := sizes{}
			for _, share := range r.proportions(active(r.all)) {
				got[share.rs.Name] = share.size
			}
			if !maps.Equal(got, test.after) {
				t.Errorf("got %v, want %v", got, test.after)
			}
		})
	}
}

func TestPart_RoundsHalfUpAndDoesNotOverflow(t *testing.T) {
	for name, test := range map[string]struct {
		d                  *appsv1.Deployment
		size               int32
		most               int
		toAdd, left, wants int64
	}{
		"half is rounded up":        {rolling(3, "0", "1"), 1, 2, 1, 1, 1},
		"less than half is not":     {rolling(4, "0", "1"), 1, 3, 1, 1, 0},
		"no more than there is":     {rolling(9, "0", "1"), 1, 1, 8, 3, 3},
		"nothing left":              {rolling(9, "0", "1"), 1, 1, 8, 0, 0},
		"no more than is taken":     {rolling(1, "0", "1"), 9, 9, -8, -3, -3},
		"the largest numbers of it": {rolling(math.MaxInt32, "100%", "0"), math.MaxInt32, math.MaxInt32, 1 << 31, 1 << 31, math.MaxInt32},
	} {
		t.Run(name, func(t *testing.T) {
			rs := annotatedSet(set("new", 0, test.size, 0), maxReplicasAnnotation, strconv.Itoa(test.most))
			if got := newRollout(test.d, rs).part(rs, test.toAdd, test.left); got != test.wants {
				t.Errorf("got %d, want %d", got, test.wants)
			}
		})
	}
}

func TestIsScalingEvent(t *testing.T) {
	sized := func(name string, size int32, desired string) *appsv1.ReplicaSet {
		return annotatedSet(set(name, 0, size, 0), desiredReplicasAnnotation, desired)
	}
	for name, test := range map[string]struct {
		d    *appsv1.Deployment
		sets []*appsv1.ReplicaSet
		want bool
	}{
		"same size":                {rolling(3, "1", "0"), []*appsv1.ReplicaSet{sized("new", 3, "3")}, false},
		"another size":             {rolling(4, "1", "0"), []*appsv1.ReplicaSet{sized("new", 3, "3")}, true},
		"an old one counts":        {rolling(4, "1", "0"), []*appsv1.ReplicaSet{sized("new", 1, "4"), sized("old", 3, "3")}, true},
		"an inactive one does not": {rolling(4, "1", "0"), []*appsv1.ReplicaSet{sized("new", 4, "4"), sized("old", 0, "3")}, false},
		"nor one without":          {rolling(4, "1", "0"), []*appsv1.ReplicaSet{set("new", 0, 3, 0)}, false},
		"nor nonsense":             {rolling(4, "1", "0"), []*appsv1.ReplicaSet{sized("new", 3, "-3")}, false},
		"Recreate":                 {recreating(4), []*appsv1.ReplicaSet{sized("new", 3, "3")}, true},
		"Recreate in the midst of a rollout": {recreating(4),
			[]*appsv1.ReplicaSet{sized("new", 1, "3"), sized("old", 2, "3")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newRollout(test.d, test.sets...).isScalingEvent(); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestDistribute(t *testing.T) {
	type sizes map[string]int32
	saturated := annotatedSet(set("new", 0, 5, 5), desiredReplicasAnnotation, "5")
	for name, test := range map[string]struct {
		d     *appsv1.Deployment
		sets  []*appsv1.ReplicaSet
		after sizes
	}{
		"nothing there":            {rolling(5, "1", "0"), nil, sizes{}},
		"the only active one":      {rolling(5, "1", "0"), []*appsv1.ReplicaSet{set("new", 0, 0, 0), set("old", 1, 3, 3)}, sizes{"new": 0, "old": 5}},
		"none: the new one":        {rolling(5, "1", "0"), []*appsv1.ReplicaSet{set("new", 1, 0, 0), set("old", 0, 0, 0)}, sizes{"new": 5, "old": 0}},
		"none: the youngest":       {rolling(5, "1", "0"), []*appsv1.ReplicaSet{set("b", 1, 0, 0), set("c", 2, 0, 0)}, sizes{"b": 5, "c": 0}},
		"saturated":                {rolling(5, "1", "0"), []*appsv1.ReplicaSet{saturated, set("old", 1, 3, 3)}, sizes{"new": 5, "old": 0}},
		"Recreate leaves them":     {recreating(5), []*appsv1.ReplicaSet{set("new", 0, 1, 1), set("old", 1, 3, 3)}, sizes{"new": 1, "old": 3}},
		"saturated, but Recreate":  {recreating(5), []*appsv1.ReplicaSet{saturated, set("old", 1, 3, 3)}, sizes{"new": 5, "old": 0}},
		"not saturated: available": {rolling(5, "0", "1"), []*appsv1.ReplicaSet{annotatedSet(set("new", 0, 5, 4), desiredReplicasAnnotation, "5"), set("old", 1, 5, 5)}, sizes{"new": 5, "old": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRollout(test.d, test.sets...)
			if err := r.distribute(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := sizesOf(r); !maps.Equal(got, test.after) {
				t.Errorf("got %v, want %v", got, test.after)
			}
		})
	}
}

func TestDistribute_RefreshesAnnotationsOfARightSize(t *testing.T) {
	r := newRollout(rolling(5, "1", "0"), annotatedSet(set("new", 0, 5, 5), desiredReplicasAnnotation, "9"))
	if err := r.distribute(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.newRS.Annotations; got[desiredReplicasAnnotation] != "5" || got[maxReplicasAnnotation] != "6" {
		t.Errorf("annotations %v", got)
	}
	if r.isScalingEvent() {
		t.Error("it is still taken for scaling")
	}
}

// unobserved is rs after changes of its size that its controller has not seen.
func unobserved(changes int64, rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	rs.Generation, rs.Status.ObservedGeneration = 1+changes, 1
	return rs
}

func TestShrinkOld(t *testing.T) {
	type sizes map[string]int32
	for name, test := range map[string]struct {
		d     *appsv1.Deployment
		sets  []*appsv1.ReplicaSet
		after sizes
	}{
		"unhealthy ones first": {rolling(10, "0", "2"),
			[]*appsv1.ReplicaSet{set("new", 0, 0, 0), set("b", 1, 5, 4), set("c", 2, 5, 5)}, sizes{"new": 0, "b": 4, "c": 4}},
		"the oldest first": {rolling(10, "0", "3"),
			[]*appsv1.ReplicaSet{set("new", 0, 0, 0), set("b", 1, 5, 5), set("c", 2, 5, 5)}, sizes{"new": 0, "b": 5, "c": 2}},
		"what the new one lacks is not paid for": {rolling(10, "0", "2"),
			[]*appsv1.ReplicaSet{set("new", 0, 2, 0), set("b", 1, 8, 8)}, sizes{"new": 2, "b": 8}},
		"as far as it has": {rolling(10, "0", "2"),
			[]*appsv1.ReplicaSet{set("new", 0, 2, 1), set("b", 1, 8, 8)}, sizes{"new": 2, "b": 7}},
		"unhealthy ones cost no availability, but are bounded": {rolling(10, "0", "2"),
			[]*appsv1.ReplicaSet{set("new", 0, 0, 0), set("b", 1, 10, 3)}, sizes{"new": 0, "b": 8}},
		"replicas about to go do not count": {rolling(10, "2", "2"),
			[]*appsv1.ReplicaSet{set("new", 0, 4, 2), set("b", 1, 3, 5), set("c", 2, 5, 5)}, sizes{"new": 4, "b": 3, "c": 3}},
		"a status of another size tells nothing": {rolling(3, "1", "0"),
			[]*appsv1.ReplicaSet{unobserved(2, set("new", 0, 1, 1)), set("b", 1, 3, 3)}, sizes{"new": 1, "b": 3}},
		"nor does it of an old one": {rolling(3, "1", "0"),
			[]*appsv1.ReplicaSet{set("new", 0, 2, 2), unobserved(2, set("b", 1, 2, 2))}, sizes{"new": 2, "b": 2}},
		"but what was there before one change is there still": {rolling(3, "1", "0"),
			[]*appsv1.ReplicaSet{unobserved(1, set("new", 0, 1, 1)), unobserved(1, set("b", 1, 3, 4))}, sizes{"new": 1, "b": 2}},
		"and one that wants no pods matters not": {rolling(3, "1", "0"),
			[]*appsv1.ReplicaSet{set("new", 0, 1, 1), set("b", 1, 3, 3), unobserved(2, set("c", 2, 0, 0))}, sizes{"new": 1, "b": 2, "c": 0}},
		"all of them when the new one is done": {rolling(5, "1", "0"),
			[]*appsv1.ReplicaSet{set("new", 0, 5, 5), set("b", 1, 1, 1), set("c", 2, 1, 0)}, sizes{"new": 5, "b": 0, "c": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRollout(test.d, test.sets...)
			before := sizesOf(r)
			shrunk := r.shrinkOld(t.Context())
			got := sizesOf(r)
			if r.stepErr != nil || !maps.Equal(got, test.after) {
				t.Errorf("got %v, want %v: %v", got, test.after, r.stepErr)
			}
			if shrunk == maps.Equal(before, got) {
				t.Errorf("shrunk %t from %v to %v", shrunk, before, got)
			}
		})
	}
}
