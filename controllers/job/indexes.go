package job

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// interval of completion indexes, both ends included.
type interval struct{ first, last int }

// indexSet is a set of completion indexes: ascending intervals with a gap
// between any two. A set is never changed; nil is the empty one.
type indexSet []interval

// parseIndexes reads the form of status.completedIndexes, such as "1,3-5,7".
// Only indexes below completions are taken. Items that are no interval are left
// out, which wellFormed tells.
func parseIndexes(text string, completions int) (set indexSet, wellFormed bool) {
	wellFormed = true
	for text != "" {
		var item string
		item, text, _ = strings.Cut(text, ",")
		parsed, ok := parseInterval(item)
		if !ok {
			wellFormed = false
			continue
		}
		if parsed.first >= completions {
			break // what follows is larger still
		}
		parsed.last = min(parsed.last, completions-1)
		set = append(set, parsed)
	}
	return normalized(set), wellFormed
}

func parseInterval(item string) (interval, bool) {
	first, last, isRange := strings.Cut(item, "-")
	from, ok := parseIndex(first)
	if !ok || !isRange {
		return interval{from, from}, ok
	}
	to, ok := parseIndex(last)
	return interval{from, to}, ok && from <= to
}

// parseIndex takes what an int32 can hold, as the API does.
func parseIndex(text string) (int, bool) {
	index, err := strconv.ParseInt(text, 10, 32)
	return int(index), err == nil && index >= 0
}

// normalized sorts intervals and joins those that touch.
func normalized(intervals []interval) indexSet {
	byFirst := func(a, b interval) int { return cmp.Compare(a.first, b.first) }
	if !slices.IsSortedFunc(intervals, byFirst) {
		slices.SortFunc(intervals, byFirst)
	}
	set := intervals[:0]
	for _, next := range intervals {
		if n := len(set); n > 0 && next.first <= set[n-1].last+1 {
			set[n-1].last = max(set[n-1].last, next.last)
			continue
		}
		set = append(set, next)
	}
	return set
}

// String returns the form that parseIndexes reads: runs of three or more are
// written as first-last, a run of two as two items.
func (s indexSet) String() string {
	var text []byte
	for _, i := range s {
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(i.first), 10)
		if i.last == i.first {
			continue
		}
		separator := byte('-')
		if i.last == i.first+1 {
			separator = ','
		}
		text = strconv.AppendInt(append(text, separator), int64(i.last), 10)
	}
	return string(text)
}

func (s indexSet) has(index int) bool {
	_, found := s.find(index)
	return found
}

// find returns the last index of the interval that index is in, if it is in the set.
func (s indexSet) find(index int) (last int, found bool) {
	at, found := slices.BinarySearchFunc(s, index, func(i interval, index int) int {
		switch {
		case i.last < index:
			return -1
		case i.first > index:
			return 1
		default:
			return 0
		}
	})
	if !found {
		return 0, false
	}
	return s[at].last, true
}

func (s indexSet) count() int {
	count := 0
	for _, i := range s {
		count += i.last - i.first + 1
	}
	return count
}

// with returns the set with indexes added, in any order.
func (s indexSet) with(indexes []int) indexSet {
	if len(indexes) == 0 {
		return s
	}
	intervals := slices.Grow(slices.Clone(s), len(indexes))
	for _, index := range indexes {
		intervals = append(intervals, interval{index, index})
	}
	return normalized(intervals)
}

// overlap returns how many indexes both sets have.
func (s indexSet) overlap(other indexSet) int {
	count := 0
	for i, j := 0, 0; i < len(s) && j < len(other); {
		count += max(0, min(s[i].last, other[j].last)-max(s[i].first, other[j].first)+1)
		if s[i].last < other[j].last {
			i++
		} else {
			j++
		}
	}
	return count
}
