package controller_test

import (
	"testing"

	"github.com/wheelhouse-project/wheelhouse/runtime/controller"
)

func TestMemoryKeepsOnePartOfEachType(t *testing.T) {
	type first struct{ n int }
	type second struct{ n int }
	var m controller.Memory
	made := 0
	number := func() int { made++; return made }
	a := controller.Recall(&m, func() *first { return &first{number()} })
	b := controller.Recall(&m, func() *second { return &second{number()} })
	again := controller.Recall(&m, func() *first { return &first{number()} })
	if again != a || a.n != 1 || b.n != 2 || made != 2 {
		t.Errorf("parts %+v, %+v, %+v; %d were made", a, b, again, made)
	}
	if none := controller.Recall(nil, func() *first { return &first{number()} }); none.n != 3 {
		t.Errorf("no memory has kept %+v", none)
	}
}
