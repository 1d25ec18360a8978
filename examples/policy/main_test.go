package main

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

// Each user has a bucket of 30, of which a search takes 3, and so has an address without a user.
func TestHandlerCountsUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := newHandler("../users.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			token string
			want  int
		}{
			{"Bearer secret-of-ada", 10},
			{"Bearer secret-of-bob", 10},
			{"Bearer invented", 10},
			{"", 0}, // the one before has used up the address
		} {
			passed := 0
			for range 15 {
				r := httptest.NewRequest("GET", "/api/search", nil)
				r.Header.Set("Authorization", test.token)
				r.Header.Set("X-User-Id", "somebody else")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code == 200 {
					passed++
				}
			}
			if passed != test.want {
				t.Errorf("%q: %d requests passed, want %d", test.token, passed, test.want)
			}
		}
	})
}
