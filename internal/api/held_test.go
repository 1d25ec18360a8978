package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/internal/api"
)

// id returns that of an answer that is held.
func (s *served) held(t testing.TB, body string) string {
	t.Helper()
	_, answer := s.post(t, "/v1/decide", body)
	if answer["allowed"] != true || answer["settle_within_ms"] == nil {
		t.Fatalf("%s: %v", body, answer)
	}
	return answer["id"].(string)
}

func (s *served) settled(t testing.TB, body string) bool {
	t.Helper()
	status, answer := s.post(t, "/v1/settle", body)
	if status != 200 {
		t.Fatalf("%s: status %d: %v", body, status, answer)
	}
	return answer["settled"] == true
}

// left returns what remains of the only limit of a peek.
func (s *served) left(t testing.TB, body string) int {
	t.Helper()
	_, answer := s.post(t, "/v1/decide", strings.Replace(body, "{", `{"peek":true,`, 1))
	return int(answer["limits"].([]any)[0].(map[string]any)["remaining"].(float64))
}

func TestSettleCost(t *testing.T) {
	s := serve(t, ordersPolicy)
	tokens := `{"limit":"tokens","attributes":{"tenant":"acme"},"cost":4000}`
	id := s.held(t, strings.Replace(tokens, "{", `{"settle":true,`, 1))
	if !s.settled(t, `{"id":"`+id+`","cost":1000}`) {
		t.Error("not settled")
	}
	if s.settled(t, `{"id":"`+id+`","cost":0}`) {
		t.Error("settled twice")
	}
	if got := s.left(t, tokens); got != 9000 {
		t.Errorf("%d tokens left, want 9000", got)
	}
	both := s.held(t, `{"together":true,"settle":true,"requests":[`+tokens+`,{"limit":"search","cost":3,"attributes":{"user":"u"}}]}`)
	if status, answer := s.post(t, "/v1/settle", `{"id":"`+both+`","cost":1}`); status != 400 || answer["pointer"] != "/cost" {
		t.Errorf("one cost for two limits: status %d, %v", status, answer)
	}
	if status, answer := s.post(t, "/v1/settle", `{"id":"`+both+`","costs":{"tokns":1}}`); status != 400 || answer["hint"] != `did you mean "tokens"?` {
		t.Errorf("a wrong name: status %d, %v", status, answer)
	}
	s.settled(t, `{"id":"`+both+`","costs":{"tokens":5000,"search":1}}`)
	if got := s.left(t, tokens); got != 4000 {
		t.Errorf("%d tokens left, want 4000", got)
	}
	if got := s.left(t, `{"limit":"search","attributes":{"user":"u"}}`); got != 9 {
		t.Errorf("%d searches left, want 9", got)
	}
}

func TestSettleStatus(t *testing.T) {
	s := serve(t, ordersPolicy)
	login := `{"method":"POST","path":"/api/login","ip":"203.0.113.7","attributes":{"user":"u"}}`
	for range 5 { // succeed
		s.settled(t, `{"id":"`+s.held(t, login)+`","status":200}`)
	}
	s.settled(t, `{"id":"`+s.held(t, login)+`"}`) // nobody knows: it is charged
	for range 2 {
		s.settled(t, `{"id":"`+s.held(t, login)+`","status":401}`)
	}
	if s.allowed(t, login) {
		t.Error("a fourth try after three failures")
	}
}

func TestSettleFreesPlaces(t *testing.T) {
	s := serve(t, ordersPolicy)
	export := `{"method":"POST","path":"/api/exports","ip":"203.0.113.7","attributes":{"tenant":"acme"}}`
	first := s.held(t, export)
	_, answer := s.post(t, "/v1/decide", export)
	if answer["renew_every_ms"] != 30_000.0 {
		t.Errorf("renew every %v ms, want 30 000", answer["renew_every_ms"])
	}
	_, denied := s.post(t, "/v1/decide", export)
	if denied["allowed"] != false || denied["code"] != "TOO_MANY_IN_FLIGHT" || denied["retry_after_ms"] != 1000.0 {
		t.Errorf("a third place: %v", denied)
	}
	s.settled(t, `{"id":"`+first+`"}`)
	if !s.allowed(t, export) {
		t.Error("the place was not freed")
	}
}

func TestSettleUnserved(t *testing.T) {
	s := serve(t, ordersPolicy)
	paced := `{"method":"GET","path":"/api/paced","attributes":{"user":"u"}}`
	s.allowed(t, paced)
	_, answer := s.post(t, "/v1/decide", paced)
	if delay, _ := answer["delay_ms"].(float64); delay <= 0 || delay > 1000 {
		t.Errorf("delay %v ms", answer["delay_ms"])
	}
	s.settled(t, `{"id":"`+answer["id"].(string)+`","unserved":true}`)
	_, answer = s.post(t, "/v1/decide", paced)
	if delay, _ := answer["delay_ms"].(float64); delay > 1000 {
		t.Errorf("delay %v ms: the place in the queue is still taken", delay)
	}
}

func TestSettleRefuses(t *testing.T) {
	s := serve(t, ordersPolicy)
	id := s.held(t, `{"limit":"tokens","attributes":{"tenant":"t"},"settle":true}`)
	for _, tt := range []struct {
		path, body, pointer string
		want                int
	}{
		{"/v1/settle", `{}`, "", 400},
		{"/v1/settle", `{"id":7}`, "/id", 400},
		{"/v1/settle", `{"id":"d-0000000000"}`, "/id", 404},
		{"/v1/settle", `{"id":"` + id + `","stats":200}`, "/stats", 400},
		{"/v1/settle", `{"id":"` + id + `","status":99}`, "/status", 400},
		{"/v1/settle", `{"id":"` + id + `","cost":-1}`, "/cost", 400},
		{"/v1/settle", `{"id":"` + id + `","cost":1,"costs":{}}`, "/cost", 400},
		{"/v1/settle", `{"id":"` + id + `","costs":[]}`, "/costs", 400},
		{"/v1/renew", `{"id":"d-0000000000"}`, "/id", 404},
		{"/v1/renew", `{"id":"` + id + `","more":1}`, "/more", 400},
		{"/v1/renew", `{"id":"` + id + `"}`, "", 200},
		{"/v1/settle", `{"id":"` + id + `","cost":1}`, "", 200},
		{"/v1/renew", `{"id":"` + id + `"}`, "/id", 409},
	} {
		status, answer := s.post(t, tt.path, tt.body)
		at, _ := answer["pointer"].(string)
		if status != tt.want || at != tt.pointer {
			t.Errorf("%s %s: status %d at %q, want %d at %q: %v", tt.path, tt.body, status, at, tt.want, tt.pointer, answer)
		}
	}
	// What is not asked for is not held.
	_, answer := s.post(t, "/v1/decide", order)
	if status, _ := s.post(t, "/v1/settle", `{"id":"`+answer["id"].(string)+`"}`); status != 404 || answer["settle_within_ms"] != nil {
		t.Errorf("an order is held: status %d, %v", status, answer)
	}
}

// A decision outlives a reload, and what it settles is in the store that stays.
func TestSettleAfterReload(t *testing.T) {
	store := drossel.NewMemory(nil)
	s := serve(t, "", func(o *api.Options) { o.Limiter = newLimiter(t, ordersPolicy, store) })
	tokens := `{"limit":"tokens","attributes":{"tenant":"acme"},"cost":4000}`
	id := s.held(t, strings.Replace(tokens, "{", `{"settle":true,`, 1))
	if err := s.Reload(newLimiter(t, ordersPolicy, store), nil); err != nil {
		t.Fatal(err)
	}
	s.settled(t, `{"id":"`+id+`","cost":0}`)
	if got := s.left(t, tokens); got != 10_000 {
		t.Errorf("%d left, want 10 000", got)
	}
}

func TestIdempotency(t *testing.T) {
	s := serve(t, ordersPolicy)
	ask := func(id string, cost int) string {
		return fmt.Sprintf(`{"limit":"tokens","attributes":{"tenant":"acme"},"cost":%d,"settle":true,"idempotency_id":%q}`, cost, id)
	}
	_, first := s.post(t, "/v1/decide", ask("a", 4000))
	_, second := s.post(t, "/v1/decide", `{"idempotency_id":"a","settle":true,"cost":4000,"attributes":{"tenant":"acme"},"limit":"tokens"}`)
	if fmt.Sprint(first) != fmt.Sprint(second) {
		t.Errorf("the answers differ:\n%v\n%v", first, second)
	}
	status, answer := s.post(t, "/v1/decide", ask("a", 4001))
	if status != 422 || answer["pointer"] != "/idempotency_id" {
		t.Errorf("another question with the id: status %d, %v", status, answer)
	}
	status, answer = s.post(t, "/v1/decide", `{"requests":[{"limit":"tokens","cost":1,"attributes":{"tenant":"acme"}},`+ask("a", 1)+`]}`)
	if status != 422 || answer["pointer"] != "/requests/1/idempotency_id" {
		t.Errorf("another question in a batch: status %d, %v", status, answer)
	}
	if got := s.left(t, `{"limit":"tokens","attributes":{"tenant":"acme"}}`); got != 6000 {
		t.Errorf("%d left, want 6000: charged once, and by nothing that was refused", got)
	}
	if _, other := s.post(t, "/v1/decide", ask("b", 4000)); other["id"] == first["id"] {
		t.Error("another id has the same decision")
	}
	// A denial is kept too, as is what several have together.
	together := `{"together":true,"idempotency_id":"c","requests":[{"limit":"tokens","cost":9000,"attributes":{"tenant":"acme"}}]}`
	_, first = s.post(t, "/v1/decide", together)
	_, second = s.post(t, "/v1/decide", together)
	if first["allowed"] != false || first["id"] != second["id"] {
		t.Errorf("%v\n%v", first, second)
	}
}

// Many at the same time are one question.
func TestIdempotencyAtOnce(t *testing.T) {
	s := serve(t, ordersPolicy)
	var running sync.WaitGroup
	for range 20 {
		running.Go(func() {
			s.post(t, "/v1/decide", `{"limit":"tokens","attributes":{"tenant":"acme"},"cost":4000,"idempotency_id":"x"}`)
		})
	}
	running.Wait()
	if got := s.left(t, `{"limit":"tokens","attributes":{"tenant":"acme"}}`); got != 6000 {
		t.Errorf("%d left, want 6000", got)
	}
}

// A question that gets a problem may be asked again with its id.
func TestIdempotencyAfterProblem(t *testing.T) {
	s := serve(t, ordersPolicy)
	ask := `{"method":"POST","path":"/api/orders","idempotency_id":"x"%s}`
	if status, _ := s.post(t, "/v1/decide", fmt.Sprintf(ask, "")); status != 400 {
		t.Errorf("status %d without ip", status)
	}
	if status, _ := s.post(t, "/v1/decide", fmt.Sprintf(ask, `,"ip":"203.0.113.7"`)); status != 200 {
		t.Errorf("status %d with ip", status)
	}
}

// Nothing of a batch is charged if one of its questions cannot be answered.
func TestBatchIsChargedWholeOrNot(t *testing.T) {
	s := serve(t, ordersPolicy)
	for _, tt := range []struct {
		second  string
		status  int
		pointer string
	}{
		{`{"limit":"tokens","cost":2,"attributes":{"tenant":"acme"},"idempotency_id":"a"}`, 422, "/requests/1/idempotency_id"},
		{`{"method":"POST","path":"/api/orders"}`, 400, "/requests/1"},
		{`{"limit":"flood"}`, 400, "/requests/1"},
		{`{"limit":"none"}`, 400, "/requests/1/limit"},
	} {
		first := `{"limit":"tokens","cost":1000,"attributes":{"tenant":"acme"},"idempotency_id":"a"}`
		status, answer := s.post(t, "/v1/decide", `{"requests":[`+first+`,`+tt.second+`]}`)
		if status != tt.status || answer["pointer"] != tt.pointer {
			t.Errorf("%s: status %d, %v", tt.second, status, answer)
		}
		if got := s.left(t, `{"limit":"tokens","attributes":{"tenant":"acme"}}`); got != 10_000 {
			t.Errorf("%s: %d left, want 10 000", tt.second, got)
		}
	}
}

// slow is a store that answers when answer is closed.
type slow struct {
	drossel.Store

	asked, answer chan struct{}
}

func (s slow) Take(ctx context.Context, batch *drossel.Batch) error {
	s.asked <- struct{}{}
	<-s.answer
	return s.Store.Take(ctx, batch)
}

// All ids of a batch are taken before the first of its questions is charged: who comes in between with one
// of them and another question is refused, and not the rest of the batch.
func TestBatchClaimsItsIDs(t *testing.T) {
	store := slow{drossel.NewMemory(nil), make(chan struct{}, 4), make(chan struct{})}
	s := serve(t, "", func(o *api.Options) { o.Limiter = newLimiter(t, ordersPolicy, store) })
	tokens := `{"limit":"tokens","attributes":{"tenant":"acme"},"cost":%d,"idempotency_id":%q}`
	batch := make(chan int, 1)
	go func() {
		status, _ := s.post(t, "/v1/decide", `{"requests":[`+fmt.Sprintf(tokens, 1, "a")+`,`+fmt.Sprintf(tokens, 2, "b")+`]}`)
		batch <- status
	}()
	<-store.asked // about a
	other := make(chan int, 1)
	go func() {
		status, _ := s.post(t, "/v1/decide", fmt.Sprintf(tokens, 3, "b"))
		other <- status
	}()
	select {
	case status := <-other:
		if status != 422 {
			t.Errorf("another question with an id of the batch: status %d, want 422", status)
		}
	case <-store.asked:
		t.Error("another question with an id of the batch is decided")
	}
	close(store.answer)
	if status := <-batch; status != 200 {
		t.Errorf("the batch: status %d, want 200", status)
	}
}

// What is settled makes room for others.
func TestSettledMakesRoom(t *testing.T) {
	s := serve(t, ordersPolicy)
	s.Bound(2)
	tokens := `{"limit":"tokens","attributes":{"tenant":"acme"},"settle":true}`
	for range 10 {
		id := s.held(t, tokens)
		if !s.settled(t, `{"id":"`+id+`","cost":0}`) || s.settled(t, `{"id":"`+id+`","cost":0}`) {
			t.Error("not settled once")
		}
	}
	s.held(t, tokens)
	s.held(t, tokens)
	if _, answer := s.post(t, "/v1/decide", tokens); answer["allowed"] != true || answer["settle_within_ms"] != nil {
		t.Errorf("a third one: %v", answer)
	}
}

// breaking is a store that cannot tell at first.
type breaking struct {
	drossel.Store

	broken *bool
}

func (b breaking) Take(ctx context.Context, batch *drossel.Batch) error {
	if *b.broken {
		return errors.New("down")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return b.Store.Take(ctx, batch)
}

// An answer of a store that could not tell is not kept.
func TestIdempotencyWhileTheStoreFails(t *testing.T) {
	broken := true
	text := "decisions: {}\nlimits: {read: {rate: 10/m, by: ip}}\nroutes:\n  /: {limits: [read], on_store_failure: closed}\n"
	s := handler{}
	var err error
	s.Server, err = api.New(api.Options{Limiter: newLimiter(t, text, breaking{drossel.NewMemory(nil), &broken})})
	if err != nil {
		t.Fatal(err)
	}
	ask := `{"method":"GET","path":"/","ip":"203.0.113.7","idempotency_id":"a"}`
	if answer := s.answer(t, "/v1/decide", ask); answer["allowed"] != false || answer["by"] != "closed" {
		t.Errorf("%v", answer)
	}
	broken = false
	// The first caller is gone before there is an answer: who asks again gets it.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/decide", strings.NewReader(ask))
	r.Header.Set("Content-Type", "application/json")
	s.ServeHTTP(httptest.NewRecorder(), r)
	for range 2 {
		answer := s.answer(t, "/v1/decide", ask)
		if answer["allowed"] != true || answer["by"] != "store" || answer["limits"].([]any)[0].(map[string]any)["remaining"] != 9.0 {
			t.Errorf("%v", answer)
		}
	}
}

// broken is a store that cannot tell.
type broken struct{ drossel.Store }

func (broken) Take(context.Context, *drossel.Batch) error { return errors.New("down") }

func TestDecideWhileTheStoreFails(t *testing.T) {
	const text = `
decisions: {}
limits: {read: 10/m by ip}
routes:
  /open: {limits: [read], on_store_failure: open}
  /closed: {limits: [read], on_store_failure: closed}
`
	s := serve(t, "", func(o *api.Options) { o.Limiter = newLimiter(t, text, broken{}) })
	_, answer := s.post(t, "/v1/decide", `{"method":"GET","path":"/open","ip":"203.0.113.7"}`)
	compare(t, "open", answer)
	_, answer = s.post(t, "/v1/decide", `{"method":"GET","path":"/closed","ip":"203.0.113.7"}`)
	if answer["allowed"] != false || answer["status"] != 503.0 || answer["by"] != "closed" || answer["code"] != "RATE_LIMITER_UNAVAILABLE" {
		t.Errorf("%v", answer)
	}
}

// What is held and kept ends by itself.
func TestTablesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := handled(t, ordersPolicy)
		tokens := `{"limit":"tokens","attributes":{"tenant":"acme"},"cost":4000,"settle":true,"idempotency_id":"a"}`
		first := s.answer(t, "/v1/decide", tokens)
		time.Sleep(2*time.Minute - time.Second)
		if again := s.answer(t, "/v1/decide", tokens); again["id"] != first["id"] {
			t.Error("the answer is not kept for two minutes")
		}
		time.Sleep(time.Second)
		if again := s.answer(t, "/v1/decide", tokens); again["id"] == first["id"] {
			t.Error("the answer is kept for longer than two minutes")
		}
		time.Sleep(8*time.Minute - time.Second)
		renewed := s.answer(t, "/v1/renew", `{"id":"`+first["id"].(string)+`"}`)
		if renewed["renewed"] != true {
			t.Errorf("a decision of 10 minutes ago: %v", renewed)
		}
		time.Sleep(10*time.Minute - time.Second)
		if got := s.answer(t, "/v1/settle", `{"id":"`+first["id"].(string)+`"}`); got["settled"] != true {
			t.Errorf("a decision that was renewed 10 minutes ago: %v", got)
		}
		time.Sleep(10 * time.Minute)
		if got := s.answer(t, "/v1/settle", `{"id":"`+first["id"].(string)+`"}`); got["status"] != 404.0 {
			t.Errorf("a decision of longer ago: %v", got)
		}
	})
}

// A place that is not renewed is lost; one that is, is kept.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := handled(t, ordersPolicy)
		export := `{"method":"POST","path":"/api/exports","attributes":{"tenant":"acme"}}`
		kept := s.answer(t, "/v1/decide", export)["id"].(string)
		lost := s.answer(t, "/v1/decide", export)["id"].(string)
		for range 5 {
			time.Sleep(30 * time.Second)
			if got := s.answer(t, "/v1/renew", `{"id":"`+kept+`"}`); got["renewed"] != true {
				t.Errorf("%v", got)
			}
		}
		if got := s.answer(t, "/v1/decide", export); got["allowed"] != true {
			t.Error("the place of a silent holder is not given up")
		}
		if got := s.answer(t, "/v1/decide", export); got["allowed"] != false {
			t.Error("the place of a holder that renews is given up")
		}
		if got := s.answer(t, "/v1/renew", `{"id":"`+lost+`"}`); got["renewed"] != false {
			t.Errorf("a lost place: %v", got)
		}
	})
}
