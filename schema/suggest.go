package schema

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// nearest returns the candidate that name is most likely a slip of, if any is
// near enough.
func nearest(name string, candidates []string) (string, bool) {
	if len(name) > 100 {
		return "", false
	}
	best, bestDistance := "", 1000
	for _, candidate := range candidates {
		d := distance(strings.ToLower(name), strings.ToLower(candidate))
		if d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	limit := max(1, min(len(name), len(best))/3)
	return best, best != "" && bestDistance <= limit
}

func didYouMean(name string, candidates []string) string {
	if best, ok := nearest(name, candidates); ok {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// distance is the optimal string alignment distance: insertions, deletions,
// substitutions and swaps of neighbours cost 1 each.
func distance(a, b string) int {
	before, previous, current := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range previous {
		previous[j] = j
	}
	for i := 1; i <= len(a); i++ {
		current[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			current[j] = min(previous[j]+1, current[j-1]+1, previous[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				current[j] = min(current[j], before[j-2]+1)
			}
		}
		before, previous, current = previous, current, before
	}
	return previous[len(b)]
}

// show quotes a value for a message. What is long or not plain text might be a
// secret in the wrong place and is only counted.
func show(s string) string {
	switch {
	case s == "":
		return "an empty string"
	case len(s) > 80, strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Sprintf("a string of %d bytes", len(s))
	}
	return strconv.Quote(s)
}

var simpleKey = regexp.MustCompile(`^[A-Za-z0-9_/-]{1,80}$`)

// below is the path of a key that may be anything.
func below(path, key string) string {
	if simpleKey.MatchString(key) {
		return join(path, key)
	}
	return path
}
