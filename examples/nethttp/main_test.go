package main

import (
	"net/http/httptest"
	"testing"
)

func TestHandlerLimits(t *testing.T) {
	h, err := newHandler()
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for range 100 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/hello", nil))
		if w.Code == 200 {
			passed++
			continue
		}
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" {
			t.Fatalf("status %d, Retry-After %q; want 429 and 1", w.Code, w.Header().Get("Retry-After"))
		}
		break
	}
	if passed < 20 {
		t.Errorf("%d requests passed, want at least the burst of 20", passed)
	}
}
