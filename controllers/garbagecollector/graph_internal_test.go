package garbagecollector

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var things = apischema.GroupVersionResource{Version: "v1", Resource: "things"}

func thing(name string, owners ...metav1.OwnerReference) object {
	return object{identity: identity{"v1", "Thing", "ns", name, types.UID("uid-" + name)}, resource: things, owners: owners}
}

func to(name string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: name, UID: types.UID("uid-" + name)}
}

func blocking(ref metav1.OwnerReference) metav1.OwnerReference {
	ref.BlockOwnerDeletion = ptr.To(true)
	return ref
}

func examine(name string) task { return task{uid: types.UID("uid-" + name)} }

func verify(name string) task {
	claim := thing(name).identity
	return task{uid: claim.uid, claim: claim}
}

func TestAnObjectDoesNotBlockItself(t *testing.T) {
	t.Parallel()
	g := newGraph(time.Now, newOrphanings())
	self := thing("self", blocking(to("self")))
	self.deleting, self.foreground = true, true
	g.observe(self)
	if blocked, idle := g.blockers(self.uid); blocked || len(idle) > 0 {
		t.Errorf("blocked %v by %v", blocked, idle)
	}
	g.observe(thing("a", blocking(to("self"))))
	if blocked, idle := g.blockers(self.uid); !blocked || !slices.Equal(idle, []types.UID{"uid-a"}) {
		t.Errorf("blocked %v by %v, want by another dependent", blocked, idle)
	}
}

func TestWhatIsLookedAtWhenTheGraphChanges(t *testing.T) {
	t.Parallel()
	foreground := func(o object) object { o.deleting, o.foreground = true, true; return o }
	orphan := func(o object) object { o.deleting, o.orphan = true, true; return o }
	in := func(namespace string, o object) object { o.namespace = namespace; return o }
	observe := func(o object) func(*graph) changes { return func(g *graph) changes { return g.observe(o) } }
	forget := func(name string, deleted bool) func(*graph) changes {
		return func(g *graph) changes { return g.forget(types.UID("uid-"+name), things, deleted) }
	}
	other := to("owner")
	other.Kind = "Other"
	for _, test := range []struct {
		name    string
		before  []func(*graph) changes
		change  func(*graph) changes
		tasks   []task
		orphans []types.UID
		notices int
	}{
		{"an object without owners", nil, observe(thing("a")), nil, nil, 0},
		{"an owner that nobody has seen", nil, observe(thing("a", to("owner"))), []task{verify("owner")}, nil, 0},
		{"an owner that is there", []func(*graph) changes{observe(thing("owner"))}, observe(thing("a", to("owner"))), nil, nil, 0},
		{"an owner of another kind", []func(*graph) changes{observe(thing("owner"))}, observe(thing("a", other)), []task{examine("a")}, nil, 0},
		{
			"an owner in another namespace",
			[]func(*graph) changes{observe(in("b", thing("owner")))}, observe(thing("a", to("owner"))), []task{examine("a")}, nil, 1,
		},
		{
			"an owner that arrives late",
			[]func(*graph) changes{observe(thing("a", to("owner"))), observe(thing("bad", other))},
			observe(thing("owner")), []task{examine("bad")}, nil, 0,
		},
		{
			"an owner whose deletion was watched",
			[]func(*graph) changes{observe(thing("owner")), observe(thing("a", to("owner"))), observe(thing("bad", other))},
			forget("owner", true), []task{examine("a"), {uid: "uid-owner", claim: claimOf(&other, "ns")}}, nil, 0,
		},
		{
			"an owner that is not there any more",
			[]func(*graph) changes{observe(thing("owner")), observe(thing("a", to("owner")))},
			forget("owner", false), []task{verify("owner")}, nil, 0,
		},
		{
			"a dependent of an owner that is known to be gone",
			[]func(*graph) changes{observe(thing("owner")), observe(thing("a", to("owner"))), forget("owner", true)},
			observe(thing("b", to("owner"))), []task{examine("b")}, nil, 0,
		},
		{
			"foreground deletion",
			[]func(*graph) changes{observe(thing("owner")), observe(thing("a", to("owner")))},
			observe(foreground(thing("owner"))), []task{examine("owner"), examine("a")}, nil, 0,
		},
		{
			"foreground deletion that is known",
			[]func(*graph) changes{observe(foreground(thing("owner"))), observe(thing("a"))},
			observe(foreground(thing("owner"))), nil, nil, 0,
		},
		{
			"foreground deletion again",
			[]func(*graph) changes{observe(foreground(thing("owner"))), observe(object{
				identity: thing("owner").identity, resource: things, deleting: true,
			})},
			observe(foreground(thing("owner"))), []task{examine("owner")}, nil, 0,
		},
		{"orphaning", []func(*graph) changes{observe(thing("owner"))}, observe(orphan(thing("owner"))), nil, []types.UID{"uid-owner"}, 0},
		{
			"orphaning goes first", []func(*graph) changes{observe(thing("owner"))},
			observe(foreground(orphan(thing("owner")))), nil, []types.UID{"uid-owner"}, 0,
		},
		{
			"a blocking dependent goes",
			[]func(*graph) changes{observe(foreground(thing("owner"))), observe(thing("a", blocking(to("owner"))))},
			forget("a", true), []task{examine("owner")}, nil, 0,
		},
		{
			"a dependent blocks no more",
			[]func(*graph) changes{observe(foreground(thing("owner"))), observe(thing("a", blocking(to("owner"))))},
			observe(thing("a", to("owner"))), []task{examine("owner")}, nil, 0,
		},
		{
			"a blocking dependent leaves",
			[]func(*graph) changes{observe(foreground(thing("owner"))), observe(thing("a", blocking(to("owner"))))},
			observe(thing("a")), []task{examine("owner")}, nil, 0,
		},
		{"an unknown object goes", nil, forget("a", true), nil, nil, 0},
		{
			"a claim is found wrong",
			[]func(*graph) changes{observe(thing("a", to("owner"))), observe(thing("b", other))},
			func(g *graph) changes { return g.setAbsent(thing("owner").identity) }, []task{examine("a")}, nil, 0,
		},
		{
			"a claim without a namespace is found wrong",
			[]func(*graph) changes{observe(thing("a", to("owner"))), observe(in("b", thing("b", to("owner"))))},
			func(g *graph) changes { return g.setAbsent(thing("owner").identity.clusterScoped()) },
			[]task{examine("a"), examine("b")}, nil, 0,
		},
		{
			"the monitor of a resource ends",
			[]func(*graph) changes{observe(thing("owner")), observe(thing("kept")), observe(thing("kept-2", to("owner")))},
			func(g *graph) changes {
				return g.drop(things, func(i identity) bool { return strings.HasPrefix(i.name, "kept") })
			},
			[]task{verify("owner")}, nil, 0,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newGraph(time.Now, newOrphanings())
			for _, change := range test.before {
				change(g)
			}
			c := test.change(g)
			if got, want := taskSet(c.tasks), taskSet(test.tasks); !maps.Equal(got, want) {
				t.Errorf("tasks %v, want %v", got, want)
			}
			if !slices.Equal(c.orphans, test.orphans) || len(c.notices) != test.notices {
				t.Errorf("orphans %v, notices %v", c.orphans, c.notices)
			}
		})
	}
}

func taskSet(tasks []task) map[task]bool {
	set := map[task]bool{}
	for _, t := range tasks {
		set[t] = true
	}
	return set
}

// history of one object, whose events keep their order.
type history []func(*graph) changes

// TestTheOrderOfEventsDoesNotMatter lets the events of many objects come in
// random order, each object's own in their order, and compares the graphs at
// the end. Everything that has to be looked at by then must have been told.
func TestTheOrderOfEventsDoesNotMatter(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		histories, last := randomHistories(random)
		var want map[types.UID]string
		for order := range 4 {
			g := newGraph(func() time.Time { return time.Time{} }, newOrphanings())
			var told held
			for next := slices.Clone(histories); len(next) > 0; {
				i := random.IntN(len(next))
				told.add(next[i][0](g))
				if next[i] = next[i][1:]; len(next[i]) == 0 {
					next = slices.Delete(next, i, i+1)
				}
			}
			checkTold(t, g, last, told.tasks)
			got := describe(t, g)
			if order == 0 {
				want = got
			} else if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: another order ends in\n%v\nnot\n%v", seed, got, want)
			}
		}
	}
}

func randomHistories(random *rand.Rand) (histories []history, last map[types.UID]object) {
	last = map[types.UID]object{}
	const objects = 8
	for n := range objects {
		var h history
		for range 1 + random.IntN(3) {
			o := thing(fmt.Sprint(n))
			for range random.IntN(3) {
				ref := to(fmt.Sprint(random.IntN(objects + 2)))
				if random.IntN(5) == 0 {
					ref.Kind = "Other"
				}
				if random.IntN(2) == 0 {
					ref = blocking(ref)
				}
				o.owners = append(o.owners, ref)
			}
			o.deleting = random.IntN(4) == 0
			o.foreground = o.deleting && random.IntN(2) == 0
			h = append(h, func(g *graph) changes { return g.observe(o) })
			last[o.uid] = o
		}
		if random.IntN(3) == 0 {
			uid, deleted := types.UID(fmt.Sprint("uid-", n)), random.IntN(2) == 0
			h = append(h, func(g *graph) changes { return g.forget(uid, things, deleted) })
			delete(last, uid)
		}
		histories = append(histories, h)
	}
	return histories, last
}

// checkTold fails unless each reference to an owner that is not there, or is
// another object, was told of.
func checkTold(t *testing.T, g *graph, last map[types.UID]object, told map[task]struct{}) {
	t.Helper()
	for _, o := range last {
		for i := range o.owners {
			ref := &o.owners[i]
			if g.owner(ref, o.namespace) == solid {
				continue
			}
			_, examined := told[task{uid: o.uid}]
			_, verified := told[task{uid: ref.UID, claim: claimOf(ref, o.namespace)}]
			if !examined && !verified {
				t.Fatalf("%s: nobody looks at its owner %v", o.name, ref)
			}
		}
	}
}

// describe a graph, apart from what depends on when something was asked, and
// check that its edges are those of the nodes' owners.
func describe(t *testing.T, g *graph) map[types.UID]string {
	t.Helper()
	described := map[types.UID]string{}
	edges := 0
	for uid, n := range g.nodes {
		dependents := slices.Sorted(maps.Keys(n.dependents))
		edges += len(dependents)
		if !n.observed && len(dependents) == 0 {
			t.Fatalf("%s is in the graph for no reason", uid)
		}
		owners := map[types.UID]bool{}
		for i := range n.owners {
			owner := g.nodes[n.owners[i].UID]
			if owner == nil || owner.dependents[uid] != n {
				t.Fatalf("%s is no dependent of its owner %s", uid, n.owners[i].UID)
			}
			owners[n.owners[i].UID] = true
		}
		for _, dependent := range n.dependents {
			if !refers(dependent.owners, uid) {
				t.Fatalf("%s is a dependent of %s without a reference", dependent.uid, uid)
			}
		}
		described[uid] = fmt.Sprint(n.observed, n.deleting, n.foreground, dependents, len(owners))
	}
	if edges != g.edges {
		t.Fatalf("%d edges are counted, there are %d", g.edges, edges)
	}
	return described
}

func TestDOTShowsWhatIsConnected(t *testing.T) {
	t.Parallel()
	g := newGraph(time.Now, newOrphanings())
	g.observe(thing("owner"))
	g.observe(thing("child", to("owner"), to("virtual")))
	g.observe(thing("alone"))
	g.observe(thing("far", to("away")))
	var all, some bytes.Buffer
	if err := writeDOT(&all, g.drawing()); err != nil {
		t.Fatal(err)
	}
	if err := writeDOT(&some, g.drawing("uid-owner")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"uid-child" -> "uid-owner";`, `"uid-child" -> "uid-virtual";`, `virtual="true"`, `kind="Thing"`} {
		if !strings.Contains(all.String(), want) || !strings.Contains(some.String(), want) {
			t.Errorf("no %s in\n%s\nor in\n%s", want, &all, &some)
		}
	}
	if strings.Contains(all.String(), "alone") || !strings.Contains(all.String(), "uid-far") || strings.Contains(some.String(), "uid-far") {
		t.Errorf("the graphs show the wrong objects:\n%s\n%s", &all, &some)
	}
}
