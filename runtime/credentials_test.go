package runtime

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wheelhouse-project/wheelhouse/runtime/filewatch"
	"github.com/wheelhouse-project/wheelhouse/schema"
)

// What the configuration says of following files holds for a watcher that runs,
// and for the one after it.
func TestCredentialsAreFollowedAsConfigured(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	var followed credentialFiles
	debounce := func(d time.Duration) {
		followed.apply(schema.Reload{Debounce: metav1.Duration{Duration: d}})
	}
	debounce(time.Hour)
	for range 2 {
		changes := make(chan struct{}, 10)
		watcher := filewatch.New(filewatch.Options{Paths: []string{file}, OnChange: func(filewatch.Set) { changes <- struct{}{} }})
		watcher.Read()
		followed.follow(watcher)
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := watcher.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		for changed := false; !changed; {
			write(time.Now().String())
			select {
			case <-changes:
				changed = true
			case <-time.After(50 * time.Millisecond):
				debounce(time.Millisecond)
			}
		}
		end()
		running.Wait()
	}
}
