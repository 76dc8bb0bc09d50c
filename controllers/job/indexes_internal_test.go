package job

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestIndexesAreReadAndWritten(t *testing.T) {
	for _, test := range []struct {
		name        string
		text        string
		completions int
		want        string
		wellFormed  bool
		count       int
	}{
		{"nothing", "", 5, "", true, 0},
		{"one", "0", 5, "0", true, 1},
		{"a run of two is two items", "1-2", 5, "1,2", true, 2},
		{"runs", "1,3-5,7,8", 10, "1,3-5,7,8", true, 6},
		{"neighbours join", "1,2,3-4", 10, "1-4", true, 4},
		{"beyond completions", "1,3-9,12", 5, "1,3,4", true, 3},
		{"the end of completions", "4,5", 5, "4", true, 1},
		{"no completions", "0-3", 0, "", true, 0},
		{"malformed items are left out", "x,1,,3-,5-4,-7,6-8", 10, "1,6-8", false, 4},
		{"spaces and signs", " 1,+2", 10, "2", false, 1},
		{"out of order and overlapping", "5-7,1,6-9", 20, "1,5-9", true, 6},
		{"too large for an index", "1,99999999999", math.MaxInt, "1", false, 1},
		{"all of very many", "0-2147483646", math.MaxInt32, "0-2147483646", true, math.MaxInt32},
	} {
		set, wellFormed := parseIndexes(test.text, test.completions)
		if set.String() != test.want || wellFormed != test.wellFormed || set.count() != test.count {
			t.Errorf("%s: got %q with %d indexes, well-formed: %t", test.name, set, set.count(), wellFormed)
		}
	}
}

// Sets do what maps do.
func TestIndexSetsAreSets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		const completions = 40
		var sets [2]indexSet
		var maps [2]map[int]bool
		for i := range sets {
			maps[i] = map[int]bool{}
			for range random.IntN(4) {
				var added []int
				for range random.IntN(10) {
					index := random.IntN(completions)
					added = append(added, index)
					maps[i][index] = true
				}
				before := slices.Clone(sets[i])
				larger := sets[i].with(added)
				if !slices.Equal(before, sets[i]) {
					t.Fatalf("%v was changed", before)
				}
				sets[i] = larger
			}
			again, wellFormed := parseIndexes(sets[i].String(), completions)
			if !slices.Equal(again, sets[i]) || !wellFormed {
				t.Fatalf("%q is read as %q", sets[i], again)
			}
			if sets[i].count() != len(maps[i]) {
				t.Fatalf("%q has %d indexes, want %d", sets[i], sets[i].count(), len(maps[i]))
			}
		}
		common := 0
		for index := range completions {
			for i := range sets {
				if sets[i].has(index) != maps[i][index] {
					t.Fatalf("%q has %d: %t", sets[i], index, sets[i].has(index))
				}
			}
			if maps[0][index] && maps[1][index] {
				common++
			}
		}
		if got := sets[0].overlap(sets[1]); got != common {
			t.Fatalf("%q and %q have %d in common, want %d", sets[0], sets[1], got, common)
		}
	}
}

func FuzzParseIndexes(f *testing.F) {
	for _, seed := range []string{"", "0", "1,3-5,7,8", "5-4", "-1", "1-2-3", ",,", "0-2147483647", "9999999999", "x"} {
		f.Add(seed, 10)
	}
	f.Fuzz(func(t *testing.T, text string, completions int) {
		set, _ := parseIndexes(text, completions)
		for i, interval := range set {
			if interval.first < 0 || interval.first > interval.last || interval.last >= completions ||
				i > 0 && interval.first <= set[i-1].last+1 {
				t.Fatalf("%q is read as %v", text, set)
			}
		}
		again, wellFormed := parseIndexes(set.String(), completions)
		if !wellFormed || !slices.Equal(again, set) {
			t.Fatalf("%q is read as %v, and that as %v", text, set, again)
		}
	})
}
