package bench

import (
	"os"
	"testing"

	"github.com/wheelhouse-project/wheelhouse/test/controlplane"
)

func BenchmarkBinarySize(b *testing.B) {
	const peer = "kube-controller-manager"
	for b.Loop() {
		ours, err := binary()
		if err != nil {
			b.Fatal(err)
		}
		programs, err := controlplane.Programs(b.Context(), os.Stderr, peer)
		if err != nil {
			b.Fatal(err)
		}
		size := func(path string) float64 {
			info, err := os.Stat(path)
			if err != nil {
				b.Fatal(err)
			}
			return float64(info.Size()) / (1 << 20)
		}
		results.add("binary, stripped, without cgo", "MiB", size(ours), size(programs[peer]))
	}
	results.write(b)
}
