package garbagecollector

import "sync"

// gate holds work back until the graph knows what that work relies on.
//
// Nothing is looked at before the gate is open: every monitor has shown all of
// its resource, cannot at present, or takes long. That an owner has no further
// dependents is believed only while the graph is complete: every monitor has
// shown all of its resource, or has failed to for syncTimeout.
type gate struct {
	mu             sync.Mutex
	open, complete bool
	// unopened is what has come up before the gate was opened first.
	unopened held
	// incomplete is what needs a complete graph.
	incomplete held
}

// pass tells whether changes may be worked on; otherwise they are kept.
func (g *gate) pass(c changes) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		g.unopened.add(c)
	}
	return g.open
}

// needsComplete tells whether the graph is complete; otherwise c is kept until it is.
func (g *gate) needsComplete(c changes) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.complete {
		g.incomplete.add(c)
	}
	return g.complete
}

// set what holds now, and take what was held back for it. A gate once open stays open.
func (g *gate) set(open, complete bool) []changes {
	g.mu.Lock()
	defer g.mu.Unlock()
	var released []changes
	if open && !g.open {
		g.open = true
		released = append(released, g.unopened.take())
	}
	g.complete = complete
	if complete {
		released = append(released, g.incomplete.take())
	}
	return released
}

func (g *gate) state() (open, complete bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open, g.complete
}
