package policy_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// routesFile is a policy of these patterns and nothing else.
func routesFile(patterns []string) []byte {
	var b strings.Builder
	b.WriteString("routes:\n")
	for _, p := range patterns {
		fmt.Fprintf(&b, "  '%s': unlimited\n", strings.ReplaceAll(p, "'", "''"))
	}
	return []byte(b.String())
}

func newRouter(t testing.TB, patterns ...string) *policy.Limiter {
	t.Helper()
	p, problems := policy.Parse("routes.yaml", routesFile(patterns))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	lim, err := policy.New(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lim
}

// route returns the pattern that a request matches, "-" if none does.
func route(t testing.TB, lim *policy.Limiter, request string) string {
	method, url, _ := strings.Cut(request, " ")
	slash := max(strings.IndexByte(url, '/'), 0)
	d := lim.Decide(t.Context(), &identity.Request{Method: method, Host: url[:slash], Path: url[slash:], Peer: "192.0.2.1:1"})
	if d.Route == nil {
		return "-"
	}
	return d.Route.Pattern
}

func TestRouteOf(t *testing.T) {
	lim := newRouter(
		t, "/a/", "/a", "GET /a/b", "/a/b", "/a/{x}/c", "HEAD /h", "GET /h", "/h", "GET /g/", "api.example.com/a/", "/{$}", "/w/{rest...}",
		"/v/{x}", "/v/1/", "POST /only", "/é", "/api/{t}/export", "/api/acme/{w}", "/api/acme/export",
	)
	for _, test := range []struct{ request, want string }{
		{"GET /a", "/a"},
		{"GET /a/", "/a"},
		{"GET /a/x", "/a/"},
		{"GET /a/x/y/z", "/a/"},
		{"GET /a/b", "GET /a/b"},
		{"HEAD /a/b", "GET /a/b"},
		{"POST /a/b", "/a/b"},
		{"GET /a/b/c", "/a/{x}/c"},
		{"GET /a/b/c/d", "/a/"},
		{"HEAD /h", "HEAD /h"},
		{"GET /h", "GET /h"},
		{"PUT /h", "/h"},
		{"GET /g", "GET /g/"},
		{"HEAD /g/x", "GET /g/"},
		{"POST /g/x", "-"},
		{"GET api.example.com/a/x", "api.example.com/a/"},
		{"GET API.example.com.:8080/a/b", "api.example.com/a/"},
		{"GET api.example.com/h", "GET /h"},
		{"GET other.example.com/a/x", "/a/"},
		{"GET /", "/{$}"},
		{"GET ", "/{$}"},
		{"GET /x", "-"},
		{"GET /w", "/w/{rest...}"},
		{"GET /w/1/2", "/w/{rest...}"},
		{"GET /v/1", "/v/1/"},
		{"GET /v/2", "/v/{x}"},
		{"GET /v/1/2", "/v/1/"},
		{"GET /v/2/2", "-"},
		{"post /only", "POST /only"},
		{"PUT /only", "-"},
		{"OPTIONS *", "-"},
		{"GET /%C3%A9", "/é"},
		{"GET /a/%62", "GET /a/b"},
		{"GET /a%2Fb", "GET /a/b"},
		{"GET /a/%zz", "/a/"},
		{"GET /x/../a/./b//", "GET /a/b"},
		{"GET /a;v=1/b;x", "GET /a/b"},
		{"GET /a/./b", "GET /a/b"},
		{"GET /a//b", "GET /a/b"},
		{"GET /v/..;/a/b", "GET /a/b"},
		{"GET /../../a", "/a"},
		{"GET //a", "/a"},
		{"GET /a%252Fb", "-"},
		{"GET /api/acme/export", "/api/acme/export"},
		{"GET /api/other/export", "/api/{t}/export"},
		{"GET /api/acme/import", "/api/acme/{w}"},
	} {
		if got := route(t, lim, test.request); got != test.want {
			t.Errorf("%s matches %s, want %s", test.request, got, test.want)
		}
	}
}

// The values of wildcards are those of the path in normal form.
// What other routers take for a wildcard is text if it is escaped, and its normal
// form reads as the same pattern again.
func TestEscapedWildcards(t *testing.T) {
	lim := newRouter(t, "/", "/a/%3Aid", "/b/%2A", "/c/x%2A", "/d/%3Cid>", "/e/%5Bid]", "/f/a:b", "/g/%3F", "/h/:")
	for request, want := range map[string]string{
		"GET /a/:id":  "/a/%3Aid",
		"GET /b/*":    "/b/%2A",
		"GET /b/x":    "/",
		"GET /c/x*":   "/c/x%2A",
		"GET /d/<id>": "/d/%3Cid>",
		"GET /e/[id]": "/e/%5Bid]",
		"GET /f/a:b":  "/f/a:b",
		"GET /g/%3F":  "/g/%3F",
		"GET /h/:":    "/h/%3A",
	} {
		if got := route(t, lim, request); got != want {
			t.Errorf("%s goes to %s, want %s", request, got, want)
		}
	}
	var patterns []string
	for _, r := range lim.Policy().Routes {
		patterns = append(patterns, r.Pattern)
	}
	for i, r := range newRouter(t, patterns...).Policy().Routes {
		if r.Pattern != patterns[i] {
			t.Errorf("%s reads as %s", patterns[i], r.Pattern)
		}
	}
}

func TestWildcardValues(t *testing.T) {
	lim := load(t, `
limits: {hooks: 60/m by path.provider+path.rest}
routes:
  POST /hooks/{provider}/{rest...}: {limits: [hooks]}
  /: unlimited
`, nil)
	req := identity.Request{Method: "POST", Path: "/x/../hooks//git%68ub;v=2/a/b/", Peer: "192.0.2.1:1"}
	d := lim.Decide(t.Context(), &req)
	if got, want := lim.ShowKey(d.Batch.Checks[0].Key), "path.provider+path.rest #"; !strings.HasPrefix(got, want) {
		t.Errorf("key %q, want %q", got, want)
	}
	want := []identity.Param{{Name: "provider", Value: "github"}, {Name: "rest", Value: "a/b"}}
	if !slices.Equal(req.Params, want) {
		t.Errorf("params %v, want %v", req.Params, want)
	}
}

// A slow model: every pattern is two regular expressions, every one is tried, and
// the candidates are compared segment by segment.
type slowRoute struct {
	text, method, host string
	path               []string
	subtree            bool
	fold               bool // case is folded; only with valid UTF-8
}

func slowPattern(text string) slowRoute {
	r := slowRoute{text: text}
	rest := text
	if method, after, ok := strings.Cut(rest, " "); ok {
		r.method, rest = strings.ToUpper(method), strings.TrimLeft(after, " ")
	}
	slash := strings.Index(rest, "/")
	r.host = strings.ToLower(strings.TrimSuffix(rest[:slash], "."))
	for s := range strings.SplitSeq(rest[slash+1:], "/") {
		switch {
		case s == "" || strings.HasSuffix(s, "...}"):
			r.subtree = true
		case s == "{$}":
		case strings.HasPrefix(s, "{"):
			r.path = append(r.path, "{}")
		default:
			r.path = append(r.path, slowDecode(s))
		}
	}
	return r
}

var slowEscape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

func slowDecode(s string) string {
	return slowEscape.ReplaceAllStringFunc(s, func(e string) string {
		c, _ := strconv.ParseUint(e[1:], 16, 8)
		return string([]byte{byte(c)})
	})
}

func slowClean(path string) string {
	path = regexp.MustCompile(`;[^/]*`).ReplaceAllString("/"+slowDecode(path)+"/", "")
	parent := regexp.MustCompile(`(?s)^(.*?)/[^/]+/\.\./`)
	for {
		before := path
		path = strings.ReplaceAll(path, "//", "/")
		path = strings.ReplaceAll(path, "/./", "/")
		for strings.HasPrefix(path, "/../") {
			path = path[3:]
		}
		if path == before {
			if path = parent.ReplaceAllString(path, "$1/"); path == before {
				break
			}
		}
	}
	return strings.TrimSuffix(path, "/")
}

// latin1 makes each byte a character, for package regexp knows no others.
func latin1(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		b.WriteRune(rune(c))
	}
	return b.String()
}

// rank returns how r matches: one character for each place, "0" the most specific.
func (r *slowRoute) rank(method, host, path string) (rank string, ok bool) {
	if r.host != "" && r.host != host {
		return "", false
	}
	rank = "1"
	if r.host != "" {
		rank = "0"
	}
	expr, segments, chars := "(?s)^", strings.Split(path, "/")[1:], latin1
	if r.fold {
		expr, chars = "(?si)^", func(s string) string { return s }
	}
	for _, s := range r.path {
		if s == "{}" {
			expr += "/[^/]+"
		} else {
			expr += "/" + regexp.QuoteMeta(chars(s))
		}
	}
	if r.subtree {
		expr += "(/.*)?"
	}
	if !regexp.MustCompile(expr + "$").MatchString(chars(path)) {
		return "", false
	}
	for i := range segments {
		switch {
		case i >= len(r.path):
			rank += "2"
		case r.path[i] == "{}":
			rank += "1"
		default:
			rank += "0"
		}
	}
	implied := "0"
	if r.subtree && len(segments) == len(r.path) {
		implied = "1"
	}
	rank += implied
	switch {
	case r.method == method:
		return rank + "0", true
	case r.method == "GET" && method == "HEAD":
		return rank + "1", true
	case r.method == "":
		return rank + "2", true
	}
	return "", false
}

// slowMatch returns the route of a request, and whether another that matches too
// is not less specific.
func slowMatch(routes []slowRoute, method, host, path string) (best string, ambiguous bool) {
	method, host, path = strings.ToUpper(method), strings.ToLower(strings.TrimSuffix(host, ".")), slowClean(path)
	var ranks, texts []string
	for _, r := range routes {
		if rank, ok := r.rank(method, host, path); ok {
			ranks, texts = append(ranks, rank), append(texts, r.text)
		}
	}
	if len(ranks) == 0 {
		return "-", false
	}
	least := slices.Min(ranks)
	at := slices.Index(ranks, least)
	for i, rank := range ranks {
		// The method counts only where the paths are the same.
		paths, bestPaths := rank[:len(rank)-2], least[:len(least)-2]
		if i == at || paths == bestPaths {
			ambiguous = ambiguous || i != at && rank == least
			continue
		}
		if paths[0] != bestPaths[0] {
			continue // one has a host
		}
		for j := range paths {
			ambiguous = ambiguous || bestPaths[j] > paths[j]
		}
	}
	return texts[at], ambiguous
}

func samePattern(text string) bool { return !strings.ContainsAny(text, "'\n\x00") }

func FuzzMatch(f *testing.F) {
	f.Add("/a/\n/a\nGET /a/{x}", "GET", "", "/a/b", false)
	f.Add("/api/{t}/export\n/api/acme/{w}\n/api/acme/export", "POST", "h", "/api/acme/export", false)
	f.Add("/api/{t}/export\n/api/acme/{w}", "POST", "h", "/api/acme/export", false)
	f.Add("GET /a/\nHEAD /a\n/a", "HEAD", "", "/a/", false)
	f.Add("h/a/\n/a/b\nHEAD /{x}/", "HEAD", "H.", "//a/./b/..;x/%62", false)
	f.Add("/{x}/{y...}\n/{$}\n/b%20c", "GET", "", "/b%20c/", false)
	f.Add("GET /{a}/b/\n/c/{d}/\n/c/b/", "GET", "", "/c/b/e", false)
	f.Add("/API/{X}\n/api/K", "GET", "", "/aPi/k", true)
	f.Add("/A/{x}\n/a/{y}\n/%C3%89/", "GET", "", "/%C3%A9/b", true)
	f.Fuzz(func(t *testing.T, text, method, host, path string, fold bool) {
		if strings.Count(text, "\n") > 12 || len(text) > 400 || len(path) > 400 || strings.ContainsAny(host, ":[") || !isASCII(text+host+method) {
			return
		}
		patterns := strings.Split(text, "\n")
		if !slices.ContainsFunc(patterns, samePattern) {
			return
		}
		file := func(patterns ...string) []byte {
			return fmt.Appendf(routesFile(patterns), "paths: {fold_case: %v}\n", fold)
		}
		p, problems := policy.Parse("f", file(patterns...))
		conflict := false
		for _, problem := range problems {
			switch {
			case strings.Contains(problem.Text, " both match "):
				conflict = true
			case !problem.Warning:
				return // not a pattern
			}
		}
		var routes []slowRoute
		for _, text := range patterns {
			r := slowPattern(text)
			r.fold = fold
			if fold && !utf8.ValidString(strings.Join(r.path, "/")+slowClean(path)) {
				return
			}
			routes = append(routes, r)
		}
		want, ambiguous := slowMatch(routes, method, host, path)
		if conflict {
			checkConflicts(t, problems, routes)
			return
		}
		if ambiguous {
			t.Fatalf("%q: %s %s%s matches %s and another, and no conflict is reported", patterns, method, host, path, want)
		}
		lim, err := policy.New(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		x := lim.Explain(t.Context(), &identity.Request{Method: method, Host: host, Path: path, Peer: "192.0.2.1:1"})
		got := "-"
		if x.Decision.Route != nil {
			got = patterns[x.Decision.Route.Line-2]
		}
		if got != want {
			t.Fatalf("%q: %s %s%s (%q) matches %q, want %q", patterns, method, host, path, x.Path, got, want)
		}
		clean := "/" + strings.TrimPrefix(slowClean(path), "/")
		if !strings.Contains(got, "{") && x.Path != clean && (!fold || !strings.EqualFold(x.Path, clean)) {
			t.Fatalf("path %q is %q, want %q", path, x.Path, slowClean(path))
		}
		for _, r := range p.Routes {
			again, problems := policy.Parse("f", file(r.Pattern))
			if problems.Err() != nil || again.Routes[0].Pattern != r.Pattern {
				t.Fatalf("pattern %q is written as %q, which does not read the same: %v", patterns[r.Line-2], r.Pattern, problems)
			}
		}
	})
}

// checkConflicts holds that both routes of a conflict match the path it names, and
// that neither wins.
func checkConflicts(t *testing.T, problems policy.Problems, routes []slowRoute) {
	t.Helper()
	for _, problem := range problems {
		pair, sample, ok := strings.Cut(problem.Text, " both match ")
		if !ok {
			continue
		}
		// Messages do not show control characters and bytes that are no text.
		found := slices.ContainsFunc(routes, func(r slowRoute) bool {
			path := strings.Join(r.path, "/")
			return strings.ContainsFunc(path, unicode.IsControl) || !utf8.ValidString(path)
		})
		for i := range routes {
			for j := range i {
				a, b := &routes[i], &routes[j]
				if pair != fmt.Sprintf("%q and %q", b.text, a.text) {
					continue
				}
				for _, method := range []string{a.method, b.method, "GET", "HEAD"} {
					path := sample
					if path == "/" {
						path = ""
					}
					x, ok1 := a.rank(method, a.host, path)
					y, ok2 := b.rank(method, a.host, path)
					found = found || ok1 && ok2 && (x == y || ambiguousRanks(x, y))
				}
			}
		}
		if !found {
			t.Fatalf("%s: not so", problem)
		}
	}
}

func ambiguousRanks(x, y string) bool {
	var more, less bool
	for i := range len(x) - 2 {
		more, less = more || x[i] > y[i], less || x[i] < y[i]
	}
	return more && less
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c >= 0x7f || c < ' ' && c != '\n' })
}

// swapCase changes the case of every letter that has one.
func swapCase(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsUpper(c) {
			return unicode.ToLower(c)
		}
		return unicode.ToUpper(c)
	}, s)
}

// With fold_case a path is decided as the one with the other case, whatever servers
// make of it, and as its fold is by a policy whose patterns were folded by hand.
func TestFoldCase(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	patterns := []string{"/", "/API/", "/api/{Tenant}/x", "/Api/ADMIN/{y}/", "/api/Admin/x", "GET /é/{x}", "/Straſe", "/api/k/x"}
	file := func(fold bool) *policy.Limiter {
		var b strings.Builder
		fmt.Fprintf(&b, "paths: {fold_case: %v}\nlimits: {tenant: 9/s by path.Tenant+ip}\nroutes:\n", fold)
		for _, p := range patterns {
			limits := "9/s by ip"
			if strings.Contains(p, "Tenant") {
				limits += ", tenant"
			}
			if !fold {
				p = strings.NewReplacer("API", "api", "Api", "api", "ADMIN", "admin", "Admin", "admin", "ſ", "s", "Straſe", "strase").Replace(p)
			}
			fmt.Fprintf(&b, "  %q: {limits: [%s]}\n", p, limits)
		}
		return load(t, b.String(), nil)
	}
	folding, exact := file(true), file(false)
	decide := func(lim *policy.Limiter, path string) (names, keys []string) {
		req := identity.Request{Method: "GET", Path: path, Peer: "192.0.2.1:1"}
		d := lim.Explain(t.Context(), &req).Decision
		for i, l := range d.Limits {
			names, keys = append(names, strings.ToLower(l.Name)), append(keys, d.Batch.Checks[i].Key)
		}
		return names, keys
	}
	several := 0
	for range 6_000 {
		var b strings.Builder
		for range 1 + random.IntN(5) {
			b.WriteString(pick("/", "/", "/", "%2f", "%2F", "") + pick("api", "API", "aPi", "Admin", "adMIN", "k", "\u212a", "É", "é", "%C3%89", "straSe", "STRAſE", "..", ".", "x", "X;v=A", "%41pi"))
		}
		path := b.String()
		names, keys := decide(folding, path)
		if len(names) > 2 {
			several++
		}
		if again, others := decide(folding, swapCase(path)); !slices.Equal(names, again) || !slices.Equal(keys, others) {
			t.Fatalf("%q is limited by %q %q, %q by %q %q", path, names, keys, swapCase(path), again, others)
		}
		// Decoding by hand would change what is ambiguous, so escaped letters are left out.
		if strings.Contains(path, "%C3") || strings.Contains(path, "%41") {
			continue
		}
		lower := strings.NewReplacer("ſ", "s", "\u212a", "k").Replace(strings.ToLower(path))
		if want, wantKeys := decide(exact, lower); !slices.Equal(names, want) || !slices.Equal(keys, wantKeys) {
			t.Fatalf("%q is limited by %q %q, by a folded policy by %q %q", path, names, keys, want, wantKeys)
		}
	}
	if several < 20 {
		t.Errorf("only %d paths had several readings", several)
	}
}

// The path that the upstream gets is another thing; folding clean paths costs nothing.
func TestFoldedPathAllocates(t *testing.T) {
	lim := load(t, "paths: {fold_case: true}\nroutes: {/API/é/: unlimited, /: unlimited}\n", nil)
	for path, most := range map[string]float64{"/api/é/x": 1, "/API/É/x": 2} {
		req := identity.Request{Method: "GET", Path: path, Peer: "192.0.2.1:1"}
		if d := lim.Decide(t.Context(), &req); d.Route.Pattern != "/api/é/" || req.Path != path {
			t.Errorf("%s goes to %s, and the request's path is %s", path, d.Route.Pattern, req.Path)
		}
		if n := testing.AllocsPerRun(100, func() { lim.Decide(t.Context(), &req) }); n > most {
			t.Errorf("%s: %v allocations, want %v", path, n, most)
		}
	}
}

// Where a pattern means the same to net/http, the same pattern wins: no final
// slashes in requests, and no request for the very path of a pattern with one.
func TestMatchesLikeServeMux(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	sets, compared := 0, 0
	for range 3000 {
		var patterns []string
		mux := http.NewServeMux()
		var bases []string
		for range 2 + random.IntN(6) {
			text := pick("", "", "GET ", "POST ", "HEAD ") + pick("", "", "", "h.example")
			for i := range 1 + random.IntN(3) {
				text += "/" + pick("a", "b", "c", fmt.Sprintf("{w%d}", i))
			}
			if random.IntN(3) == 0 {
				bases = append(bases, text)
				text += "/"
			}
			if tryHandle(mux, text) {
				patterns = append(patterns, text)
			}
		}
		p, problems := policy.Parse("f", routesFile(patterns))
		if problems.Err() != nil || len(patterns) == 0 {
			continue // /a/{x}/ and /{y}/b share /a/b here
		}
		sets++
		lim, _ := policy.New(p, nil)
		for range 20 {
			method, host, path := pick("GET", "POST", "HEAD", "PUT"), pick("h.example", "other"), ""
			for range 1 + random.IntN(4) {
				path += "/" + pick("a", "b", "c", "d")
			}
			if slices.ContainsFunc(bases, func(b string) bool { return strings.Count(b, "/") == strings.Count(path, "/") }) {
				continue
			}
			r, _ := http.NewRequest(method, "http://"+host+path, http.NoBody)
			_, want := mux.Handler(r)
			if want == "" {
				want = "-"
			}
			compared++
			if got := route(t, lim, method+" "+host+path); got != want {
				t.Fatalf("%q: %s %s%s matches %q, net/http says %q", patterns, method, host, path, got, want)
			}
		}
	}
	if sets < 500 || compared < 5000 {
		t.Errorf("only %d sets and %d requests were compared", sets, compared)
	}
}

func tryHandle(mux *http.ServeMux, pattern string) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	return true
}

// A thousand routes are found as few are, without allocating for a clean path.
func TestManyRoutes(t *testing.T) {
	var patterns []string
	for i := range 1000 {
		patterns = append(patterns, fmt.Sprintf("GET /api/v%d/things%d/{id}/parts", i%10, i))
	}
	lim := newRouter(t, append(patterns, "/")...)
	req := identity.Request{Method: "GET", Path: "/api/v3/things513/77/parts", Peer: "192.0.2.1:1"}
	if d := lim.Decide(t.Context(), &req); d.Route.Pattern != patterns[513] {
		t.Fatalf("matches %q", d.Route.Pattern)
	}
	if n := testing.AllocsPerRun(100, func() { lim.Decide(t.Context(), &req) }); n > 1 {
		t.Errorf("%v allocations, want 1: the decision", n)
	}
}

// Long and deep paths cost what the tree has, not what they have.
func TestHostilePaths(t *testing.T) {
	lim := newRouter(t, "/{a}/{b}/{c}/x", "/{a}/{b}/y/z", "/{a}/z/{c}/{d}/e", "/")
	for _, path := range []string{
		strings.Repeat("/a", 1<<19), strings.Repeat("/", 1<<20), strings.Repeat("/..", 1<<18), strings.Repeat("%2e%2e/", 1<<17),
		strings.Repeat("%", 1<<20), strings.Repeat(";", 1<<20), "/\x00/\xff", "", "*", "http://other/a",
	} {
		req := identity.Request{Method: "GET", Path: path, Peer: "192.0.2.1:1"}
		allocs := testing.AllocsPerRun(3, func() { lim.Decide(t.Context(), &req) })
		if allocs > 40 {
			t.Errorf("path of %d bytes that begins with %.10q: %v allocations", len(path), path, allocs)
		}
	}
}
