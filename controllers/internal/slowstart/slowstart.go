// Package slowstart makes many like calls without flooding the API server
// when all of them fail alike.
package slowstart

import (
	"context"
	"sync"
)

// widest is how many calls run at once at the most.
const widest = 500

// Run calls call for 0 … count-1, in batches of 1, 2, 4 … up to 500 calls that
// run at once, and waits for each batch. It stops after a batch in which a call
// failed, and before a batch when ctx has ended. It returns how many calls
// succeeded, and the error of the failed call with the lowest number or that
// of ctx. So a refusal that holds for all costs one call, not count.
func Run(ctx context.Context, count int, call func(ctx context.Context, i int) error) (int, error) {
	succeeded := 0
	for start, size := 0, 1; start < count; start, size = start+size, min(2*size, widest) {
		if err := ctx.Err(); err != nil {
			return succeeded, err
		}
		size = min(size, count-start)
		errs := make([]error, size)
		var batch sync.WaitGroup
		for i := range size {
			batch.Go(func() { errs[i] = call(ctx, start+i) })
		}
		batch.Wait()

		var failed error
		for _, err := range errs {
			switch {
			case err == nil:
				succeeded++
			case failed == nil:
				failed = err
			}
		}
		if failed != nil {
			return succeeded, failed
		}
	}
	return succeeded, nil
}
