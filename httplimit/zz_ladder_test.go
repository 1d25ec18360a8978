package httplimit

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
)

func TestLadder(t *testing.T) {
	runtime.GOMAXPROCS(1)
	lim, _ := drossel.New(drossel.PerSecond(1000000), nil)
	r := httptest.NewRequest("GET", "/api/search", nil)
	r.RemoteAddr = "203.0.113.7:51234"
	ctx := context.Background()
	key := identity.ClientIP{}.Key
	m := &limiting{lim: lim, key: key, fields: *DefaultFields(), item: newItem(lim.Budget())}
	m.lists = newLists([]*item{m.item})
	h := make(http.Header)
	var sink any
	var rs *http.Request
	c0 := &limited{Context: ctx, lim: lim}
	c0.decision, _ = lim.Take(ctx, "x")
	type step struct {
		name string
		f    func()
		res  []float64
	}
	var sv values
	texts := [5]string{"1", "2", "3", "4", "5"}
	steps := []*step{
		{name: "clear", f: func() { clear(h) }},
		{name: "value", f: func() { sink = ctx.Value(chargedByLimit{lim}) }},
		{name: "key", f: func() { _ = m.key(r) }},
		{name: "take", f: func() { lim.TakeTimed(ctx, "203.0.113.7", 1) }},
		{name: "alloc limited", f: func() { c := &limited{Context: ctx, lim: lim}; sink = c }},
		{name: "alloc+pass", f: func() { c := &limited{Context: ctx, lim: lim}; rs = c.pass(r) }},
		{name: "WithContext", f: func() { rs = r.WithContext(c0) }},
		{name: "setFields+clear", f: func() { clear(h); m.setFields(h, c0, 1700000000000000) }},
		{name: "write", f: func() {
			rep := report{shown: []shown{{m.item, &c0.decision}}, lists: m.lists, now: 1700000000000000}
			m.fields.write(&rep, &sv)
		}},
		{name: "5 map+clear", f: func() {
			clear(h)
			h["Ratelimit-Policy"] = texts2[0:1:1]
			h["Ratelimit"] = texts2[1:2:2]
			h["X-Ratelimit-Limit"] = texts2[2:3:3]
			h["X-Ratelimit-Remaining"] = texts2[3:4:4]
			h["X-Ratelimit-Reset"] = texts2[4:5:5]
		}},
	}
	_ = texts
	for range 1500 {
		for _, s := range steps {
			st := time.Now()
			for range 500 {
				s.f()
			}
			s.res = append(s.res, float64(time.Since(st))/500)
		}
	}
	for _, s := range steps {
		slices.Sort(s.res)
		fmt.Printf("%-18s p10 %.1f p25 %.1f\n", s.name, s.res[150], s.res[375])
	}
	_ = sink
	_ = rs
}

var texts2 = [5]string{"1", "2", "3", "4", "5"}
