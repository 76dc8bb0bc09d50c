package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wheelhouse-project/wheelhouse/test/harness"
)

// The test deletes 100 owners with ten dependents each, in three levels, one
// after the other while the controller is restarted at least 50 times.
const (
	reloadOwners   = 100
	reloadRestarts = 50
	reloadPace     = 100 * time.Millisecond
)

func TestReloadsAtAnyMomentChangeNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		disturb func(w *world) (stop func())
	}{
		{"reloads", func(w *world) func() { return w.instance.Reload(uint64(time.Now().UnixNano()), reloadRestarts, 5) }},
		{"aborts", func(w *world) func() { return w.instance.Disturb(uint64(time.Now().UnixNano())) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			living, doomed := w.forest()
			removed := w.watchRemovals(living)
			w.start()
			stop := sync.OnceFunc(test.disturb(w))
			t.Cleanup(stop)
			pace := time.NewTicker(reloadPace)
			defer pace.Stop()
			for n := range reloadOwners {
				w.delete(configMaps, fmt.Sprint("owner-", n), policyOf(n))
				<-pace.C
			}
			w.disturbed(doomed)
			stop()
			w.left(living, doomed)
			w.stays(2*time.Second, configMaps, "living")
			if early := removed(); len(early) > 0 {
				t.Errorf("deleted although they should live: %v", early)
			}
			w.left(living, doomed)
		})
	}
}

func policyOf(n int) metav1.DeletionPropagation {
	return []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	}[n%3]
}

// forest of owners and dependents: those who have to live and to go when all owners are deleted.
func (w *world) forest() (living, doomed map[types.UID]string) {
	w.t.Helper()
	living, doomed = map[types.UID]string{}, map[types.UID]string{}
	keeper := w.configMap("living")
	living[keeper.UID] = keeper.Name
	var mu sync.Mutex
	var workers sync.WaitGroup
	numbers := make(chan int)
	for range 4 {
		workers.Go(func() {
			for n := range numbers {
				alive, dead := w.tree(n, keeper)
				mu.Lock()
				for uid, name := range alive {
					living[uid] = name
				}
				for uid, name := range dead {
					doomed[uid] = name
				}
				mu.Unlock()
			}
		})
	}
	for n := range reloadOwners {
		numbers <- n
	}
	close(numbers)
	workers.Wait()
	return living, doomed
}

// tree of an owner: two children, two grandchildren of each, and one child of
// each of these. The second child has another owner besides, which lives, in
// one tree of five.
func (w *world) tree(n int, keeper *corev1.ConfigMap) (living, doomed map[types.UID]string) {
	living, doomed = map[types.UID]string{}, map[types.UID]string{}
	owner := w.configMap(fmt.Sprint("owner-", n))
	doomed[owner.UID] = owner.Name
	for i := range 2 {
		options := []option{ownedBy(configMapRef(owner), yes())}
		shared := i == 1 && n%5 == 0
		if shared {
			options = append(options, ownedBy(configMapRef(keeper), nil))
		}
		kept := doomed
		if shared || policyOf(n) == metav1.DeletePropagationOrphan {
			kept = living
		}
		child := w.configMap(fmt.Sprintf("child-%d-%d", n, i), options...)
		kept[child.UID] = child.Name
		for j := range 2 {
			grandchild := w.configMap(fmt.Sprintf("grandchild-%d-%d-%d", n, i, j), ownedBy(configMapRef(child), yes()))
			kept[grandchild.UID] = grandchild.Name
			last := w.secret(fmt.Sprintf("last-%d-%d-%d", n, i, j), ownedBy(configMapRef(grandchild), yes()))
			kept[last.UID] = last.Name
		}
	}
	return living, doomed
}

// watchRemovals of what should live; the result tells which were deleted.
func (w *world) watchRemovals(living map[types.UID]string) func() []string {
	w.t.Helper()
	var mu sync.Mutex
	var removed []string
	note := func(event watch.EventType, object *metav1.PartialObjectMetadata) {
		if living[object.UID] == "" || event != watch.Deleted && object.DeletionTimestamp == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		removed = append(removed, object.Name)
	}
	for _, gvr := range []apischema.GroupVersionResource{configMaps, secrets} {
		harness.Follow(w.t, w.metadata.Resource(gvr).Namespace(w.namespace), metav1.ListOptions{}, note)
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(removed)
	}
}

// disturbed waits until all that has to go is gone, or for a while: restarts
// may follow one another too fast for a busy machine.
func (w *world) disturbed(doomed map[types.UID]string) {
	w.t.Helper()
	end := time.Now().Add(20 * time.Second)
	harness.Eventually(w.t, soon, "progress", func(ctx context.Context) error {
		there, err := w.there(ctx)
		if err != nil {
			return err
		}
		for uid := range doomed {
			if there[uid] && time.Now().Before(end) {
				return errors.New("not all are gone")
			}
		}
		return nil
	})
}

// there are all ConfigMaps and Secrets, by UID.
func (w *world) there(ctx context.Context) (map[types.UID]bool, error) {
	there := map[types.UID]bool{}
	for _, gvr := range []apischema.GroupVersionResource{configMaps, secrets} {
		list, err := w.metadata.Resource(gvr).Namespace(w.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			there[list.Items[i].UID] = true
		}
	}
	return there, nil
}

// left waits until what is doomed is gone, and fails when anything else is.
func (w *world) left(living, doomed map[types.UID]string) {
	w.t.Helper()
	harness.Eventually(w.t, 2*soon, "end of all that has to go", func(ctx context.Context) error {
		there, err := w.there(ctx)
		if err != nil {
			return err
		}
		for uid, name := range living {
			if !there[uid] {
				w.t.Fatalf("%s is gone", name)
			}
		}
		count, example := 0, ""
		for uid, name := range doomed {
			if there[uid] {
				count, example = count+1, name
			}
		}
		if count > 0 {
			return errors.New(fmt.Sprint(count, " are there, such as ", example))
		}
		return nil
	})
}
