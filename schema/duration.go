package schema

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func duration(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

// shortDuration drops the zero units at the end of a duration's usual form:
// 8760h for 8760h0m0s.
func shortDuration(text string) string {
	if before, ok := strings.CutSuffix(text, "m0s"); ok {
		text = before + "m"
	}
	if before, ok := strings.CutSuffix(text, "h0m"); ok {
		text = before + "h"
	}
	return text
}
