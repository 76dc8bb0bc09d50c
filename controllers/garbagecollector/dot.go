package garbagecollector

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// dotNode is a copy of what is drawn of a node.
type dotNode struct {
	identity
	missing, deleting, foreground, virtual bool
	owners                                 []types.UID
}

// drawing of all nodes with an owner or a dependent, or of those that are
// connected with one of uids; ordered by UID.
func (g *graph) drawing(uids ...types.UID) []dotNode {
	g.mu.Lock()
	defer g.mu.Unlock()
	var drawn []dotNode
	for _, n := range g.connected(uids) {
		if len(n.owners) == 0 && len(n.dependents) == 0 {
			continue
		}
		d := dotNode{
			identity: n.identity, missing: len(n.absent) > 0, deleting: n.deleting, foreground: n.foreground, virtual: !n.observed,
		}
		for i := range n.owners {
			d.owners = append(d.owners, n.owners[i].UID)
		}
		slices.Sort(d.owners)
		d.owners = slices.Compact(d.owners)
		drawn = append(drawn, d)
	}
	slices.SortFunc(drawn, func(a, b dotNode) int { return cmp.Compare(a.uid, b.uid) })
	return drawn
}

// connected nodes, in no order; all when no UID is given. The caller holds the lock.
func (g *graph) connected(uids []types.UID) map[types.UID]*node {
	if len(uids) == 0 {
		return g.nodes
	}
	found := map[types.UID]*node{}
	for next := slices.Clone(uids); len(next) > 0; {
		uid := next[len(next)-1]
		next = next[:len(next)-1]
		n := g.nodes[uid]
		if n == nil || found[uid] != nil {
			continue
		}
		found[uid] = n
		for i := range n.owners {
			next = append(next, n.owners[i].UID)
		}
		for dependent := range n.dependents {
			next = append(next, dependent)
		}
	}
	return found
}

// writeDOT writes nodes in the language of Graphviz, with an edge from each dependent to each owner.
func writeDOT(to io.Writer, nodes []dotNode) error {
	w := bufio.NewWriter(to)
	fmt.Fprintln(w, "strict digraph full {")
	fmt.Fprintln(w, "  // Node definitions.")
	for i := range nodes {
		n := &nodes[i]
		gv, err := apischema.ParseGroupVersion(n.apiVersion)
		if err != nil { // a reference may say anything
			gv = apischema.GroupVersion{Version: n.apiVersion}
		}
		label := fmt.Sprintf("uid=%s\nnamespace=%s\nname=%s\n%s/%s\n", n.uid, n.namespace, n.name, n.apiVersion, n.kind)
		fmt.Fprintf(w, "  %q [\n", n.uid)
		for _, attribute := range []struct {
			name  string
			value any
		}{
			{"label", label},
			{"group", gv.Group},
			{"version", gv.Version},
			{"kind", n.kind},
			{"namespace", n.namespace},
			{"name", n.name},
			{"uid", n.uid},
			{"missing", n.missing},
			{"beingDeleted", n.deleting},
			{"deletingDependents", n.foreground},
			{"virtual", n.virtual},
		} {
			fmt.Fprintf(w, "    %s=%q\n", attribute.name, fmt.Sprint(attribute.value))
		}
		fmt.Fprintln(w, "  ];")
	}
	fmt.Fprintln(w, "\n  // Edge definitions.")
	for i := range nodes {
		for _, owner := range nodes[i].owners {
			fmt.Fprintf(w, "  %q -> %q;\n", nodes[i].uid, owner)
		}
	}
	fmt.Fprintln(w, "}")
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the graph: %w", err)
	}
	return nil
}
