package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/api"
	"github.com/drossel-io/drossel/policy"
)

// newLimiter makes the limiter of a policy's text.
func newLimiter(t testing.TB, text string, store drossel.Store) *policy.Limiter {
	t.Helper()
	p, problems := policy.Parse("policy.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	l, err := policy.New(p, &policy.Options{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A served is a server that listens.
type served struct {
	*api.Server

	url    string
	client *http.Client
	stop   func() // and wait
}

// still is a store whose time stands still: nothing refills, however long a test takes.
func still() drossel.Store {
	return &drossel.Virtual{Memory: drossel.NewMemory(nil), Now: time.Now().UnixMicro()}
}

// serve serves a policy until the test ends, on a store whose time stands still unless a test has one of its own.
func serve(t testing.TB, text string, change ...func(*api.Options)) *served {
	t.Helper()
	o := api.Options{}
	for _, c := range change {
		c(&o)
	}
	if o.Limiter == nil {
		o.Limiter = newLimiter(t, text, still())
	}
	s, err := api.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, s, l)
}

func serveOn(t testing.TB, s *api.Server, l net.Listener) *served {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	var once sync.Once
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	stop := func() {
		once.Do(func() {
			transport.CloseIdleConnections()
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return &served{Server: s, url: "http://" + l.Addr().String(), client: &http.Client{Transport: transport}, stop: stop}
}

// post sends a JSON body and returns status and body. What was sent and what came is what openapi.yaml
// says.
func (s *served) post(t testing.TB, path, body string) (int, map[string]any) {
	t.Helper()
	status, _, answer := s.send(t, path, body, nil)
	return status, answer
}

func (s *served) send(t testing.TB, path, body string, header http.Header) (int, http.Header, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	maps.Copy(req.Header, header)
	res, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatalf("%s %s: %v: %s", path, body, err, text)
	}
	if err := described(t).exchange(path, body, res, text); err != nil {
		t.Errorf("%s %s\n%d %s\n%v", path, body, res.StatusCode, text, err)
	}
	return res.StatusCode, res.Header, answer
}

// A description is openapi.yaml, read.
type description struct {
	document any
	compiler *jsonschema.Compiler

	mu      sync.Mutex // guards the fields below
	schemas map[string]*jsonschema.Schema
	seen    map[string]bool // exchanges: path and status
}

var openapi = sync.OnceValues(func() (*description, error) {
	text, err := os.ReadFile("openapi.yaml")
	if err != nil {
		return nil, err
	}
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	d := &description{compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, seen: map[string]bool{}}
	if d.document, err = jsonschema.UnmarshalJSON(bytes.NewReader(asJSON)); err != nil {
		return nil, err
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	return d, d.compiler.AddResource("openapi.json", d.document)
})

func described(t testing.TB) *description {
	t.Helper()
	d, err := openapi()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// at returns a part of the document.
func (d *description) at(names ...string) any {
	v := d.document
	for _, name := range names {
		m, ok := v.(map[string]any)
		if !ok || m[name] == nil {
			return nil
		}
		v = m[name]
	}
	return v
}

// check compares JSON with a schema of the document.
func (d *description) check(pointer string, text []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	schema := d.schemas[pointer]
	if schema == nil {
		var err error
		if schema, err = d.compiler.Compile("openapi.json#" + pointer); err != nil {
			return err
		}
		d.schemas[pointer] = schema
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// exchange checks a call and its answer. A call that was refused need not be as it is described; one
// that was not must.
func (d *description) exchange(path, body string, res *http.Response, answer []byte) error {
	operation := "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/post"
	status := strconv.Itoa(res.StatusCode)
	response, ok := d.at("paths", path, "post", "responses", status).(map[string]any)
	if !ok {
		return fmt.Errorf("status %s is not described", status)
	}
	d.mu.Lock()
	d.seen[path+" "+status] = true
	d.mu.Unlock()
	if res.StatusCode == http.StatusOK {
		if err := d.check(operation+"/requestBody/content/application~1json/schema", []byte(body)); err != nil {
			return fmt.Errorf("the call was answered, and is not as it is described: %w", err)
		}
	}
	at, kind := operation+"/responses/"+status, "application/json"
	if ref, ok := response["$ref"].(string); ok {
		at, kind = strings.TrimPrefix(ref, "#"), "application/problem+json"
	}
	if got := res.Header.Get("Content-Type"); got != kind {
		return fmt.Errorf("the answer is %s, not %s", got, kind)
	}
	if err := d.check(at+"/content/"+strings.ReplaceAll(kind, "/", "~1")+"/schema", answer); err != nil {
		return fmt.Errorf("the answer is not as it is described: %w", err)
	}
	return nil
}

// A handler is a server without a network, for bubbles of time.
type handler struct{ *api.Server }

func handled(t testing.TB, text string) handler {
	t.Helper()
	s, err := api.New(api.Options{Limiter: newLimiter(t, text, nil)})
	if err != nil {
		t.Fatal(err)
	}
	return handler{s}
}

func (h handler) answer(t testing.TB, path, body string) map[string]any {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(w, r)
	var answer map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s %s: %v: %s", path, body, err, w.Body)
	}
	return answer
}

// A reply is a response that was read to its end.
type reply struct {
	StatusCode int
	Header     http.Header
	Body       io.Reader
}

// patience is how long something may take that takes a moment, on a machine with other things to do.
const patience = 2 * time.Minute

// readResponse reads one response with its body.
func readResponse(t testing.TB, conn net.Conn) reply {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	return reply{res.StatusCode, res.Header, bytes.NewReader(body)}
}
