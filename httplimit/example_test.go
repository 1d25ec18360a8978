package httplimit_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// One limit for every address. Behind a proxy the address is the one that the
// proxy says.
func ExampleNew() {
	lim, err := drossel.New(drossel.PerHour(100).WithBurst(2), nil)
	if err != nil {
		panic(err)
	}
	ip := identity.ClientIP{TrustedProxies: identity.MustCIDRs("10.0.0.0/8"), From: "X-Forwarded-For"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	h := httplimit.New(lim, ip.Key)(mux)

	for range 3 {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr = "10.0.3.2:41234"
		r.Header.Set("X-Forwarded-For", "203.0.113.7")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%d  RateLimit: %s  Retry-After: %q\n", w.Code, w.Header().Get("RateLimit"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200  RateLimit: "limit";r=1;t=36  Retry-After: ""
	// 200  RateLimit: "limit";r=0;t=36  Retry-After: ""
	// 429  RateLimit: "limit";r=0;t=36  Retry-After: "36"
}

type userKey struct{}

// The signed-in user counts; whoever is not signed in counts by address.
func ExampleFirst() {
	lim, err := drossel.New(drossel.PerHour(1), nil)
	if err != nil {
		panic(err)
	}
	byUser := func(r *http.Request) string {
		user, _ := r.Context().Value(userKey{}).(string) // set by your authentication
		return user
	}
	h := httplimit.New(lim, httplimit.First(byUser, identity.ClientIP{}.Key))(http.NotFoundHandler())

	for _, user := range []string{"ada", "ada", "bob", ""} {
		r := httptest.NewRequest("GET", "/", nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
		fmt.Printf("%q %d\n", user, w.Code)
	}
	// Output:
	// "ada" 404
	// "ada" 429
	// "bob" 404
	// "" 404
}

// A policy file with attributes that the code around knows.
func ExamplePolicy() {
	p, problems := policy.Parse("policy.yaml", []byte(`
identity:
  attributes: {user: given}
limits:
  read:  {rate: 5/s burst 30, by: user|ip}
  write: {rate: 2/m burst 1, by: user|ip}
routes:
  GET /api/:  {limits: [read]}
  POST /api/: {limits: [write]}
`))
	if err := problems.Err(); err != nil {
		panic(err)
	}
	pol, err := policy.New(p, nil)
	if err != nil {
		panic(err)
	}
	h := httplimit.Policy(pol, &httplimit.Options{
		Attributes: func(*http.Request) map[string]string { return map[string]string{"user": "ada"} },
	})(http.NotFoundHandler())

	for _, method := range []string{"GET", "POST", "POST"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/api/orders", nil))
		fmt.Println(method, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// GET 404 "read";r=29;t=6
	// POST 404 "write";r=0;t=30
	// POST 429 "write";r=0;t=30
}

// A handler that does less for a client who has little left.
func ExampleFromContext() {
	lim, err := drossel.New(drossel.PerMinute(10), nil)
	if err != nil {
		panic(err)
	}
	h := httplimit.New(lim, nil)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, _ := httplimit.FromContext(r.Context())
		fmt.Println(d.Remaining, "requests left")
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	// Output: 9 requests left
}

// Counting by outcome: only failed logins are charged. The charge is taken before
// the handler runs and given back where it succeeds, so that many guesses at once
// do not slip through.
func ExamplePolicy_outcome() {
	p, problems := policy.Parse("policy.yaml", []byte(`
limits:
  login: {rate: 2/h, by: ip, charge_on: [401]}
routes:
  POST /login: {limits: [login]}
`))
	if err := problems.Err(); err != nil {
		panic(err)
	}
	pol, err := policy.New(p, nil)
	if err != nil {
		panic(err)
	}
	h := httplimit.Policy(pol, nil)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("password") != "right" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for _, password := range []string{"right", "right", "right", "wrong", "wrong", "right"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/login?password="+password, nil))
		fmt.Println(password, w.Code)
	}
	// Output:
	// right 200
	// right 200
	// right 200
	// wrong 401
	// wrong 401
	// right 429
}

// A server of your own that asks the policy itself.
func ExampleRenderer() {
	p, problems := policy.Parse("policy.yaml", []byte("routes:\n  /: {limits: [1/h by ip]}\n"))
	if err := problems.Err(); err != nil {
		panic(err)
	}
	pol, err := policy.New(p, nil)
	if err != nil {
		panic(err)
	}
	render := httplimit.NewRenderer(pol.Policy(), nil)

	for range 2 {
		req := identity.Request{Method: "GET", Path: "/", Peer: "203.0.113.7:41234"}
		d := pol.Decide(context.Background(), &req)
		w := httptest.NewRecorder()
		if d.Allowed {
			render.SetFields(w.Header(), d)
		} else {
			render.Deny(w, req.Method, d)
		}
		d.Done(context.Background(), policy.Outcome{Status: w.Code})
		fmt.Printf("%d %q %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200 "0" ""
	// 429 "0" "3600"
}
