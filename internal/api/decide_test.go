package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/drossel-io/drossel/internal/api"
)

const ordersPolicy = `
decisions: {}
identity:
  attributes:
    user: given
    tenant: given
    plan: given
    api_key: header.x-api-key
limits:
  flood:   50/s burst 200 by ip
  write:   2/m burst 3 by user|ip
  search:  {rate: 10/m, by: user}
  tokens:  {rate: 10k/h, by: tenant}
  exports: 2 in flight for 90s by tenant
  login:   {rate: 3/15m sliding_log, by: user+ip, charge_on: [401]}
  paced:   1/s burst 1 wait 10s by user
  everyone: {rate: 5000/s, status: 503}
  trial:   {rate: 1/h, by: user, mode: shadow}
classes:
  write: {limits: [write]}
routes:
  POST /api/orders: {class: write, limits: [flood, everyone]}
  GET /api/search: {limits: [search, trial]}
  POST /api/exports: {limits: [exports]}
  POST /api/login: {limits: [login]}
  GET /api/paced: {limits: [paced]}
  GET /api/keyed: {limits: [{rate: 1/h, by: api_key+ip}]}
  GET /healthz: unlimited
  /admin/: deny
`

const order = `{"method":"POST","path":"/api/orders","ip":"203.0.113.7","attributes":{"user":"u_81","tenant":"acme","plan":"pro"}}`

var idPattern = regexp.MustCompile(`d-[0-9a-z]{10}`)

// shown writes an answer without its id.
func shown(t testing.TB, answer map[string]any) string {
	t.Helper()
	text, err := json.MarshalIndent(answer, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return idPattern.ReplaceAllString(string(text), "d-ID")
}

var update = flag.Bool("update", false, "write what the files should say into them")

// compare compares an answer with a file of testdata.
func compare(t testing.TB, name string, answer map[string]any) {
	t.Helper()
	path, got := filepath.Join("testdata", name+".json"), shown(t, answer)+"\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got)\n%s", name, diff)
	}
}

// The exchange as a client of the gateway would see it, ready to be sent.
func TestDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := handled(t, ordersPolicy)
		compare(t, "allowed", s.answer(t, "/v1/decide", order))
		s.answer(t, "/v1/decide", order)
		s.answer(t, "/v1/decide", order)
		compare(t, "denied", s.answer(t, "/v1/decide", order))
	})
}

// allowed asks and returns whether the answer allows.
func (s *served) allowed(t testing.TB, body string) bool {
	t.Helper()
	status, answer := s.post(t, "/v1/decide", body)
	if status != 200 {
		t.Fatalf("%s: status %d: %v", body, status, answer)
	}
	return answer["allowed"] == true
}

func TestDecideLimit(t *testing.T) {
	s := serve(t, ordersPolicy)
	ask := func(cost int) string {
		return fmt.Sprintf(`{"limit":"tokens","attributes":{"tenant":"acme"},"cost":%d}`, cost)
	}
	if !s.allowed(t, ask(6000)) || s.allowed(t, ask(6000)) || !s.allowed(t, ask(4000)) {
		t.Error("10 000 tokens are not 6000 and 4000")
	}
	_, answer := s.post(t, "/v1/decide", ask(20000))
	body, _ := answer["body"].(map[string]any)
	if answer["retry_after_ms"] != nil || !strings.Contains(fmt.Sprint(body["detail"]), "costs 20000") {
		t.Errorf("a cost that never fits: retry after %v, %v", answer["retry_after_ms"], body["detail"])
	}
	if !s.allowed(t, `{"limit":"search","attributes":{"user":"u"}}`) {
		t.Error("a cost of 1 is denied")
	}
}

// What is asked by name and by a request is one budget.
func TestDecideLimitSharesItsBudget(t *testing.T) {
	s := serve(t, ordersPolicy)
	for i := range 12 {
		body := `{"limit":"search","attributes":{"user":"u"}}`
		if i%2 == 0 {
			body = `{"method":"GET","path":"/api/search?q=x","ip":"203.0.113.7","attributes":{"user":"u"}}`
		}
		if got, want := s.allowed(t, body), i < 10; got != want {
			t.Errorf("%d: allowed %v, want %v", i, got, want)
		}
	}
}

func TestDecideBatch(t *testing.T) {
	s := serve(t, ordersPolicy)
	_, answer := s.post(t, "/v1/decide", `{"requests":[`+order+`,`+order+`,{"limit":"write","cost":2,"attributes":{"user":"u_81"}},`+order+`,{"method":"GET","path":"/admin/x"}]}`)
	var got []any
	for _, a := range answer["answers"].([]any) {
		got = append(got, a.(map[string]any)["allowed"])
	}
	if fmt.Sprint(got) != "[true true false true false]" {
		t.Errorf("allowed %v", got)
	}
}

func TestDecideTogether(t *testing.T) {
	body := func(tokens int) string {
		return fmt.Sprintf(`{"together":true,"requests":[%s,{"limit":"tokens","cost":%d,"attributes":{"tenant":"acme"}},{"limit":"write","attributes":{"user":"u_82"}}]}`, order, tokens)
	}
	synctest.Test(t, func(t *testing.T) {
		compare(t, "together", handled(t, ordersPolicy).answer(t, "/v1/decide", body(9000)))
	})
	s := serve(t, ordersPolicy)
	s.allowed(t, body(9000))
	if s.allowed(t, body(1001)) {
		t.Error("more tokens than are left")
	}
	if !s.allowed(t, body(900)) || !s.allowed(t, order) || s.allowed(t, order) {
		t.Error("what was denied has charged the limit beside it")
	}
}

func TestDecidePeek(t *testing.T) {
	s := serve(t, ordersPolicy)
	peek := strings.Replace(order, "{", `{"peek":true,`, 1)
	for range 5 {
		if !s.allowed(t, peek) {
			t.Fatal("a peek has charged")
		}
	}
	for range 3 {
		s.allowed(t, order)
	}
	if s.allowed(t, peek) {
		t.Error("a peek allows what would be denied")
	}
}

// Nothing of the values that requests are counted by comes back.
func TestDecideTellsNoKeys(t *testing.T) {
	s := serve(t, ordersPolicy)
	body := `{"method":"GET","path":"/api/keyed","ip":"203.0.113.7","headers":{"X-Api-Key":"sk_secret_value"}}`
	for range 2 {
		_, answer := s.post(t, "/v1/decide", body)
		text := shown(t, answer)
		if strings.Contains(text, "sk_secret") || strings.Contains(text, "203.0.113.7") || !strings.Contains(text, `"key": "api_key+ip"`) {
			t.Errorf("the answer is %s", text)
		}
	}
}

// What a caller says of a request wins over the request, and counts as verified.
func TestDecideAttributesWin(t *testing.T) {
	s := serve(t, ordersPolicy)
	ask := func(header, key string) string {
		return fmt.Sprintf(`{"method":"GET","path":"/api/keyed","ip":"203.0.113.7","headers":{"x-api-key":[%q]},"attributes":{"api_key":%q}}`, header, key)
	}
	if !s.allowed(t, ask("a", "k")) || s.allowed(t, ask("b", "k")) || !s.allowed(t, ask("b", "l")) {
		t.Error("the header counts, not the attribute")
	}
}

func TestDecideToken(t *testing.T) {
	s := serve(t, ordersPolicy, func(o *api.Options) { o.Tokens = []string{"the-next-token-45678", "the-right-token-0123"} })
	for _, tt := range []struct {
		authorization []string
		want          int
		detail        string
	}{
		{nil, 401, "there is no token"},
		{[]string{"Bearer the-wrong-token-0123"}, 401, "the token is not the right one"},
		{[]string{"Basic the-right-token-0123"}, 401, "the token is not the right one"},
		{[]string{"Bearer the-right-token-0123", "Bearer x"}, 401, "the token is not the right one"},
		{[]string{"Bearer the-right-token-0123"}, 200, ""},
		{[]string{"bearer  the-right-token-0123"}, 200, ""},
		{[]string{"Bearer the-next-token-45678"}, 200, ""},
	} {
		status, header, answer := s.send(t, "/v1/decide", order, http.Header{"Authorization": tt.authorization})
		if status != tt.want || tt.detail != "" && answer["detail"] != tt.detail {
			t.Errorf("%q: status %d, %v; want %d", tt.authorization, status, answer["detail"], tt.want)
		}
		if status == 401 && header.Get("WWW-Authenticate") == "" {
			t.Errorf("%q: no WWW-Authenticate", tt.authorization)
		}
	}
	for _, path := range []string{"/v1/settle", "/v1/renew"} {
		if status, _ := s.post(t, path, `{"id":"d-0000000000"}`); status != 401 {
			t.Errorf("%s: status %d without a token", path, status)
		}
	}
	if err := s.Reload(newLimiter(t, ordersPolicy, nil), []string{"another-token-45678"}); err != nil {
		t.Fatal(err)
	}
	if status, _, _ := s.send(t, "/v1/decide", order, http.Header{"Authorization": {"Bearer the-right-token-0123"}}); status != 401 {
		t.Errorf("status %d for the token before the reload", status)
	}
}

func TestDecideRefuses(t *testing.T) {
	s := serve(t, ordersPolicy)
	many := strings.Repeat(`{"limit":"search"},`, 101)
	for _, tt := range []struct{ body, pointer, detail, hint string }{
		{``, "", "the body is empty", `send such as {"method":"GET","path":"/","ip":"203.0.113.7"}`},
		{`{`, "", "this is not JSON: unexpected end of JSON input, near byte 1", ""},
		{`{"method":"GET",}`, "", "this is not JSON", ""},
		{`{"method":"GET" "path":"/"}`, "", "this is not JSON", ""},
		{`{"method":"GET","path":"/"} {}`, "", "this is not JSON: invalid character '{' after top-level value, near byte 29", ""},
		{`[]`, "", "must be an object, not an array", ""},
		{"{\"method\":\"\xff\"}", "", "the body is not UTF-8", ""},
		{`{"method":"GET","path":"/","method":"GET"}`, "/method", "the field is there twice", ""},
		{`{"methd":"GET","path":"/"}`, "/methd", `there is no field "methd"`, `did you mean "method"?`},
		{`{"method":"GET"}`, "", "path is missing", ""},
		{`{}`, "", "method is missing", ""},
		{`{"method":7,"path":"/"}`, "/method", "must be a string, not a number", ""},
		{`{"method":"GET","path":""}`, "/path", `the path is empty`, ""},
		{`{"method":"GET","path":"/?a=1","query":"b"}`, "/query", "the path has a query too", ""},
		{`{"method":"GET","path":"/","ip":"203.0.113.7:80"}`, "/ip", `"203.0.113.7:80" is not an address`, ""},
		{`{"method":"GET","path":"/","attributes":{"usr":"u"}}`, "/attributes/usr", `the policy has no attribute "usr"`, `did you mean "user"?`},
		{`{"method":"GET","path":"/","attributes":{"ip":"u"}}`, "/attributes/ip", "ip is a field of the request", "put it beside attributes"},
		{`{"method":"GET","path":"/","attributes":{"a/b~":"u"}}`, "/attributes/a~1b~0", `the policy has no attribute "a/b~"`, ""},
		{`{"method":"GET","path":"/","attributes":{"user":7}}`, "/attributes/user", "must be a string, not a number", ""},
		{`{"method":"GET","path":"/","attributes":[]}`, "/attributes", "must be an object, not an array", ""},
		{`{"method":"GET","path":"/","headers":{"a":{}}}`, "/headers/a", "a header must be a string or an array of strings, not an object", ""},
		{`{"method":"GET","path":"/","headers":{"a":["b",1]}}`, "/headers/a/1", "must be a string, not a number", ""},
		{`{"method":"GET","path":"/","cost":2}`, "/cost", "cost belongs to limit", ""},
		{`{"limit":"serch"}`, "/limit", `there is no limit "serch"`, `did you mean "search"?`},
		{`{"limit":"search","cost":1.5}`, "/cost", "must be a whole number, written in digits", ""},
		{`{"limit":"search","cost":-1}`, "/cost", "must be 0 to 1000000000", ""},
		{`{"limit":"search","cost":1000000001}`, "/cost", "must be 0 to 1000000000", ""},
		{`{"limit":"search","peek":true,"settle":true}`, "/settle", "a peek charges nothing that could be settled", ""},
		{`{"limit":"search","idempotency_id":""}`, "/idempotency_id", "the id is empty", ""},
		{`{"limit":"search","together":true}`, "/together", "there is no requests beside it", ""},
		{`{"requests":{}}`, "/requests", "must be an array, not an object", ""},
		{`{"requests":[]}`, "/requests", "there are no requests", ""},
		{`{"requests":[` + many[:len(many)-1] + `]}`, "/requests", "there are 101 requests, more than 100", "ask in several calls"},
		{`{"requests":[{"limit":"search"},{"limit":"write","cots":1}]}`, "/requests/1/cots", `there is no field "cots"`, `did you mean "cost"?`},
		{`{"requests":[{"limit":"search"}],"peek":true}`, "/peek", "peek belongs to one request", ""},
		{`{"together":true,"requests":[{"limit":"search","peek":true}]}`, "/requests/0/peek", `there is no field "peek"`, "put it beside requests: they are decided as one"},
		{`{"method":"GET","path":"/api/search","attributes":{"user":"u"},"settle":"yes"}`, "/settle", "must be a boolean, not a string", ""},
		{`{"method":"POST","path":"/api/orders"}`, "", `limit "write" counts by user | ip, and the request has neither that nor an ip`, "add what it counts by, or ip: the address of the client"},
		{`{"requests":[[[[[[[[[[]]]]]]]]]]}`, "/requests/0/0/0/0/0/0/0", "values are nested deeper than 8", ""},
		{`{"requests":[` + strings.Repeat(`1,`, 10_000) + `1]}`, "", "the body has more than 10000 values", ""},
	} {
		status, answer := s.post(t, "/v1/decide", tt.body)
		at, _ := answer["pointer"].(string)
		hint, _ := answer["hint"].(string)
		detail, _ := answer["detail"].(string)
		if status != 400 || at != tt.pointer || !strings.HasPrefix(detail, tt.detail) || tt.hint != "" && hint != tt.hint {
			t.Errorf("%.100s\nstatus %d at %q: %s\nhint: %s\nwant 400 at %q: %s\nhint: %s", tt.body, status, at, detail, hint, tt.pointer, tt.detail, tt.hint)
		}
	}
}

// However a question is written, it is the same one.
func TestDecideWritings(t *testing.T) {
	s := serve(t, ordersPolicy)
	for _, body := range []string{
		`{"limit":"search","cost":2,"attributes":{"user":"a\"b"},"idempotency_id":"one"}`,
		" {\r\n\t\"attributes\" : { \"user\" : \"a\\u0022b\" } , \"\\u0063ost\":2\n, \"limit\":\"sea\\u0072ch\",\"idempotency_id\" :\"o\\u006ee\",\"peek\":false} \n",
	} {
		if status, answer := s.post(t, "/v1/decide", body); status != 200 || answer["allowed"] != true {
			t.Errorf("%s\nstatus %d, %v", body, status, answer)
		}
	}
}

// What cannot be decided together says so, and charges nothing.
func TestDecideTogetherRefuses(t *testing.T) {
	s := serve(t, ordersPolicy)
	var list []string
	for i := range 6 {
		list = append(list, strings.Replace(order, "u_81", fmt.Sprint("u", i), 1))
		list[i] = strings.Replace(list[i], "203.0.113.7", fmt.Sprint("203.0.113.", i), 1)
	}
	status, answer := s.post(t, "/v1/decide", `{"together":true,"requests":[`+strings.Join(list, ",")+`]}`)
	if status != 200 { // 6 of each, and everyone once
		t.Errorf("status %d: %v", status, answer)
	}
	for i := range 4 {
		list = append(list, strings.Replace(list[i], `:"u`, `:"v`, 1))
	}
	status, answer = s.post(t, "/v1/decide", `{"together":true,"requests":[`+strings.Join(list, ",")+`]}`)
	if status != 400 || answer["pointer"] != "/requests" || answer["detail"] != "together the requests have more than 16 limits" {
		t.Errorf("status %d: %v", status, answer)
	}
}

func TestHTTPRefuses(t *testing.T) {
	s := serve(t, ordersPolicy)
	for _, tt := range []struct {
		method, path, kind, body string
		want                     int
	}{
		{"GET", "/v1/decide", "application/json", "", 405},
		{"POST", "/v1/decide", "text/plain", order, 415},
		{"POST", "/v1/decide", "", order, 415},
		{"POST", "/v1/decide", "application/json; charset=utf-8", order, 200},
		{"POST", "/v1/decide", "application/json", strings.Repeat(" ", 256<<10) + order, 413},
		{"POST", "/v1/decid", "application/json", order, 404},
		{"POST", "/", "application/json", order, 404},
		{"GET", "/v1/check/nginx", "", "", 404},
		{"GET", "/v1/openapi.yaml", "", "", 200},
		{"POST", "/v1/openapi.yaml", "", "", 405},
	} {
		req, _ := http.NewRequest(tt.method, s.url+tt.path, strings.NewReader(tt.body))
		if tt.kind != "" {
			req.Header.Set("Content-Type", tt.kind)
		}
		res, err := s.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != tt.want {
			t.Errorf("%s %s %s: status %d, want %d", tt.method, tt.path, tt.kind, res.StatusCode, tt.want)
		}
	}
}

// A wrong path is told the ones that there are, and no others.
func TestUnknownPathHint(t *testing.T) {
	all := "there are /v1/decide, /v1/settle, /v1/renew, /v1/openapi.yaml"
	for _, tt := range []struct{ section, path, hint string }{
		{"decisions: {}", "/metrics-of-all", all},
		{"decisions: {}", "/v1/check/apache", all},
		{"decisions: {}", "/v1/decid", "did you mean /v1/decide?"},
		{"decisions: {forward_auth: [caddy]}", "/metrics-of-all", all + ", /v1/check/caddy"},
	} {
		h := handled(t, strings.Replace("SECTION\nidentity: {trusted_proxies: [127.0.0.1], client_ip_from: x-real-ip}\nlimits: {read: 10/m by ip}\nroutes: {/: {limits: [read]}}\n", "SECTION", tt.section, 1))
		if got := h.answer(t, tt.path, order); got["status"] != 404.0 || got["hint"] != tt.hint {
			t.Errorf("%s, %s: %v, want the hint %q", tt.section, tt.path, got, tt.hint)
		}
	}
}

// The log says at level debug what is wrong with a question, and repeats nothing of it.
func TestLogRepeatsNoQuestion(t *testing.T) {
	var log bytes.Buffer
	s := serve(t, "identity: {attributes: {user: given}}\nlimits: {l: 1/s by user}\nroutes: {/: {limits: [l]}}\n", func(o *api.Options) {
		o.Tokens = []string{"token-of-the-server"}
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	authorized := http.Header{"Authorization": {"Bearer token-of-the-server"}}
	_, _, allowed := s.send(t, "/v1/decide", `{"method":"GET","path":"/","attributes":{"user":"s3cret"},"settle":true}`, authorized)
	bodies := []string{
		`{"limit":"s3cret"}`, `{"method":"GET","path":"/","ip":"s3cret"}`,
		`{"method":"GET","path":"/","attributes":{"s3cret":"x"}}`, `{"s3cret":1}`, `{"method":"GET","path":"/s3cret?a","query":"s3cret"}`,
		`{"method":"GET","path":"/","headers":{"s3cret":7}}`, `{"requests":[{"s3cret":1}]}`, `{"s3cret":1,"s3cret":2}`, `{"s3cret"`, `s3cret`,
	}
	for _, body := range bodies {
		if status, _, _ := s.send(t, "/v1/decide", body, authorized); status != 400 {
			t.Errorf("%s: status %d", body, status)
		}
	}
	for _, body := range []string{`{"id":"s3cret"}`, fmt.Sprintf(`{"id":%q,"costs":{"s3cret":1}}`, allowed["id"]), fmt.Sprintf(`{"id":%q,"s3cret":1}`, allowed["id"])} {
		if status, _, _ := s.send(t, "/v1/settle", body, authorized); status != 400 && status != 404 {
			t.Errorf("%s: status %d", body, status)
		}
	}
	s.send(t, "/v1/decide", "{}", http.Header{"Authorization": {"Bearer s3cret"}})
	s.stop()
	if strings.Contains(log.String(), "s3cret") || strings.Contains(log.String(), "token-of") || strings.Count(log.String(), "could not be answered") != len(bodies)+4 {
		t.Error(log.String())
	}
}

// Where a program lets requests pass whose question has no answer, a client must not be able to bring
// that about: whatever it sends that a server takes is decided.
func TestClientsCannotSpoilAQuestion(t *testing.T) {
	s := serve(t, "identity: {attributes: {user: given}}\nlimits: {l: 20/h by user}\nroutes: {POST /orders: {limits: [l]}, /: unlimited}\n")
	long := strings.Repeat("x", 60<<10)
	questions := []map[string]any{
		{},
		{"host": long},
		{"headers": map[string]string{"X-Api-Key": long}},
		{"query": long},
		{"path": "/orders?" + long},
		{"attributes": map[string]string{"user": ""}, "ip": "::1"},
		{"path": "http://api.example.com/orders"},
		{"path": "http://" + long + "/orders?a=b"},
		{"path": "orders"},
		{"path": "/orders#" + long},
		{"path": "HTTP://x/orders", "query": "a=b"},
	}
	for _, q := range questions {
		for name, value := range map[string]any{"method": "POST", "path": "/orders", "attributes": map[string]string{"user": "u"}} {
			if q[name] == nil {
				q[name] = value
			}
		}
		body, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		if status, answer := s.post(t, "/v1/decide", string(body)); status != 200 || answer["limit"] != "l" {
			t.Errorf("%.300s: status %d, %v", body, status, answer)
		}
	}
	for _, body := range []string{`{"method":"` + long + `","path":"/orders"}`, `{"method":"POST","path":"*"}`, `{"method":"GET","path":"?"}`} {
		if status, answer := s.post(t, "/v1/decide", body); status != 200 || answer["allowed"] != true {
			t.Errorf("%.300s: status %d, %v", body, status, answer)
		}
	}
}
