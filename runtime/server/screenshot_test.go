//go:build screenshot

package server

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
)

// TestScreenshot takes pictures of the status page for the documentation:
//
//	go test -tags screenshot -run TestScreenshot ./runtime/server
//
// CHROMIUM is the browser (default: chromium), SCREENSHOTS the folder to write
// to, URL a page to take instead of the sample's.
func TestScreenshot(t *testing.T) {
	url := os.Getenv("URL")
	if url == "" {
		s, err := New(Options{Sources: sample(), Version: "v0.1.0", Started: before(sampleUptime)})
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(s.Handler())
		defer web.Close()
		url = web.URL + os.Getenv("PAGE")
	}
	for _, look := range []struct{ name, scheme string }{{"status", "1"}, {"status-dark", "0"}} {
		to := os.Getenv("SCREENSHOTS") + "/" + look.name + ".png"
		size := "1200,1000"
		if s := os.Getenv("SIZE"); s != "" {
			size = s
		}
		out, err := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
			"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
			"--user-data-dir="+t.TempDir(), "--hide-scrollbars", "--force-device-scale-factor=1", "--window-size="+size,
			"--blink-settings=preferredColorScheme="+look.scheme, "--screenshot="+to, url).CombinedOutput()
		if err != nil {
			t.Fatalf("chromium: %v\n%s", err, out)
		}
		t.Log("wrote", to)
	}
}
