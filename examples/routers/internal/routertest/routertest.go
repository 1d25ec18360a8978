// Package routertest is what each API of this folder must do behind policy.yaml.
package routertest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
)

// An api answers a request.
type api func(*http.Request) *http.Response

// Run tests APIs that newAPI makes, each with counts of its own.
func Run(t *testing.T, newAPI func(*testing.T) func(*http.Request) *http.Response) {
	for name, test := range map[string]func(*testing.T, api){
		"users": testUsers, "patterns": testPatterns, "outcomes": testOutcomes, "in flight": testInFlight,
		"paths": testPaths,
	} {
		t.Run(name, func(t *testing.T) { test(t, newAPI(t)) }) //nolint:bodyclose // ask closes it
	}
}

const ada, bob = "Bearer secret-of-ada", "Bearer secret-of-bob"

// Each user has the burst, and so has an address.
func testUsers(t *testing.T, call api) {
	for who, hello := range map[string]string{ada: "hello, ada\n", bob: "hello, bob\n", "Bearer invented": "hello, \n"} {
		for i := range 5 {
			res, body := ask(t, call, "GET", "/hello", who)
			if res.status != 200 || body != hello {
				t.Fatalf("%s, request %d: status %d, %q; want 200, %q", who, i, res.status, body, hello)
			}
			want := `"read";r=` + strconv.Itoa(4-i) + ";"
			if got := res.header.Get("RateLimit"); len(got) < len(want) || got[:len(want)] != want {
				t.Errorf("%s, request %d: RateLimit: %s, want %s…", who, i, got, want)
			}
		}
		res, body := ask(t, call, "GET", "/hello", who)
		denied(t, res, body, "read")
	}
	if res, body := ask(t, call, "HEAD", "/hello", ada); res.status != 429 || body != "" {
		t.Errorf("HEAD: status %d, %q; want 429 without a body", res.status, body)
	}
}

// A wildcard of a route is a key.
func testPatterns(t *testing.T, call api) {
	for _, id := range []string{"7", "8"} {
		for range 2 {
			if res, body := ask(t, call, "GET", "/items/"+id, ada); res.status != 200 || body != "item "+id+"\n" {
				t.Errorf("item %s: status %d, %q", id, res.status, body)
			}
		}
		res, body := ask(t, call, "GET", "/items/"+id, bob)
		denied(t, res, body, "item")
	}
}

// Logins that work give their charge back, those that fail do not.
func testOutcomes(t *testing.T, call api) {
	for i := range 10 {
		if res, _ := ask(t, call, "POST", "/login", ada); res.status != 200 {
			t.Fatalf("login %d: status %d, want 200", i, res.status)
		}
	}
	for i := range 3 {
		if res, _ := ask(t, call, "POST", "/login", ""); res.status != 401 {
			t.Fatalf("wrong password %d: status %d, want 401", i, res.status)
		}
	}
	res, body := ask(t, call, "POST", "/login", ada)
	denied(t, res, body, "login")
}

// The place of a request is free when it is over.
func testInFlight(t *testing.T, call api) {
	for i := range 3 {
		if res, _ := ask(t, call, "POST", "/exports", ada); res.status != 202 {
			t.Errorf("export %d: status %d, want 202", i, res.status)
		}
	}
}

// No spelling of a path that reaches the handler passes its limit by.
func testPaths(t *testing.T, call api) {
	reached := 0
	for range 4 {
		for _, path := range []string{"/login", "/login/", "/LOGIN", "//login", "/%6cogin", "/login?a=b", "/./login", "/login;x"} {
			if res, _ := ask(t, call, "POST", path, ""); res.status == 401 {
				reached++
			}
		}
	}
	if reached != 3 {
		t.Errorf("the handler was reached %d times, want 3", reached)
	}
}

// An answer is what came of a request.
type answer struct {
	status int
	header http.Header
}

func ask(t *testing.T, call api, method, path, authorization string) (answer, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	r.Header.Set("Authorization", authorization)
	r.Header.Set("User", "somebody else")
	res := call(r)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header}, string(body)
}

// denied checks the answer to a request that a limit denies.
func denied(t *testing.T, res answer, body, limit string) {
	t.Helper()
	var problem struct {
		Status   int      `json:"status"`
		Violated []string `json:"violated-policies"`
		Error    struct {
			RetryAfter int `json:"retry_after"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &problem); err != nil {
		t.Errorf("status %d, %q: %v", res.status, body, err)
		return
	}
	if res.status != 429 || problem.Status != 429 || res.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("status %d, content type %s, %s; want a problem document of 429", res.status, res.header.Get("Content-Type"), body)
	}
	if !slices.Equal(problem.Violated, []string{limit}) {
		t.Errorf("denied by %v, want %s", problem.Violated, limit)
	}
	wait, err := strconv.Atoi(res.header.Get("Retry-After"))
	if err != nil || wait < 1 || wait != problem.Error.RetryAfter {
		t.Errorf("Retry-After: %s, retry_after: %d; want the same seconds", res.header.Get("Retry-After"), problem.Error.RetryAfter)
	}
	for name, want := range map[string]string{"RateLimit": `"` + limit + `";r=0;`, "RateLimit-Policy": `"` + limit + `";q=`} {
		if got := res.header.Values(name); len(got) != 1 || len(got[0]) < len(want) || got[0][:len(want)] != want {
			t.Errorf("%s: %q, want one line %s…", name, got, want)
		}
	}
}
