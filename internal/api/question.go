package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// A question is one request, or one limit, as a caller describes it.
type question struct {
	Method     string
	Host       string
	Path       string
	Query      string
	IP         string
	Headers    http.Header
	Attributes map[string]string // and ip, if there is one
	Limit      string
	Cost       int64

	at    *value
	limit *policy.Limit // of Limit; nil if there is none
}

// Options are what a caller says about how to decide.
type options struct {
	peek   bool
	settle bool
	id     string // of the caller's, so that it may ask again
	idAt   *value
}

// A call is the body of a decide: several questions, each for itself or all as one.
type call struct {
	questions []question
	options   []options // one for each question; of those that are together one for all
	batch     bool      // the questions stood in requests
	together  bool
}

// asked are the questions that the i-th of the options is for.
func (c *call) asked(i int) []question {
	if c.batch && !c.together {
		return c.questions[i : i+1]
	}
	return c.questions
}

const (
	maxQuestions = 100 // of a call that asks each for itself
	maxTogether  = drossel.MaxChecks
	maxID        = 128 // bytes
)

// The fields of a question, and of what stands beside it.
func questionFields() []string {
	return []string{"method", "host", "path", "query", "ip", "headers", "attributes", "limit", "cost"}
}

func optionFields() []string { return []string{"peek", "settle", "idempotency_id"} }

func batchFields() []string { return []string{"requests", "together"} }

// readCall reads the body of a decide.
func (by *rules) readCall(text []byte) (*call, *problem) {
	v, p := readJSON(text)
	if p != nil {
		return nil, p
	}
	if v.get("requests") != nil {
		return by.readBatch(v)
	}
	p = v.only(slices.Concat(questionFields(), optionFields(), batchFields()))
	if p != nil {
		return nil, p
	}
	if t := v.get("together"); t != nil {
		return nil, problemAt(t, `together is for several: {"together":true,"requests":[...]}`, "there is no requests beside it")
	}
	q, p := by.readQuestion(v)
	if p != nil {
		return nil, p
	}
	o, p := readOptions(v)
	return &call{questions: []question{q}, options: []options{o}}, p
}

func (by *rules) readBatch(v *value) (*call, *problem) {
	p := v.only(slices.Concat(batchFields(), optionFields()))
	if p != nil {
		return nil, p
	}
	c := &call{batch: true}
	if c.together, p = v.get("together").flag(); p != nil {
		return nil, p
	}
	known, most := slices.Concat(questionFields(), optionFields()), maxQuestions
	if c.together {
		known, most = questionFields(), maxTogether
		o, p := readOptions(v)
		if p != nil {
			return nil, p
		}
		c.options = append(c.options, o)
	} else {
		for _, name := range optionFields() {
			if v.get(name) != nil {
				return nil, problemAt(v.get(name), "put it into each of the requests, or ask them together", "%s belongs to one request", name)
			}
		}
	}
	list := v.get("requests")
	switch {
	case list.kind != listKind:
		return nil, list.wrong(listKind)
	case len(list.items) == 0:
		return nil, problemAt(list, "", "there are no requests")
	case len(list.items) > most:
		return nil, problemAt(list, "ask in several calls", "there are %d requests, more than %d", len(list.items), most)
	}
	for _, item := range list.items {
		if p := by.readItem(c, item, known); p != nil {
			return nil, p
		}
	}
	return c, nil
}

// readItem reads one of the requests of a batch.
func (by *rules) readItem(c *call, v *value, known []string) *problem {
	p := v.only(known)
	if p != nil {
		if c.together && slices.ContainsFunc(optionFields(), func(name string) bool { return v.get(name) != nil }) {
			p.Hint = "put it beside requests: they are decided as one"
		}
		return p
	}
	q, p := by.readQuestion(v)
	if p != nil {
		return p
	}
	c.questions = append(c.questions, q)
	if c.together {
		return nil
	}
	o, p := readOptions(v)
	c.options = append(c.options, o)
	return p
}

func readOptions(v *value) (o options, p *problem) {
	if o.peek, p = v.get("peek").flag(); p != nil {
		return o, p
	}
	if o.settle, p = v.get("settle").flag(); p != nil {
		return o, p
	}
	if o.peek && o.settle {
		return o, problemAt(v.get("settle"), "leave one of them out", "a peek charges nothing that could be settled")
	}
	o.idAt = v.get("idempotency_id")
	if o.id, p = o.idAt.string(maxID); p != nil {
		return o, p
	}
	if o.idAt != nil && o.id == "" {
		return o, problemAt(o.idAt, "leave it out, or make up a new one for each question", "the id is empty")
	}
	return o, nil
}

// readQuestion reads what is asked about.
func (by *rules) readQuestion(v *value) (q question, p *problem) {
	q.at = v
	for _, text := range []struct {
		name string
		to   *string
		most int
	}{
		{"method", &q.Method, maxBody}, // clients choose it, and what comes before limit
		{"host", &q.Host, maxBody},
		{"path", &q.Path, maxBody},
		{"query", &q.Query, maxBody},
		{"ip", &q.IP, 64},
		{"limit", &q.Limit, 64},
	} {
		if *text.to, p = v.get(text.name).string(text.most); p != nil {
			return q, p
		}
	}
	if p = by.readTarget(&q); p != nil {
		return q, p
	}
	if ip := v.get("ip"); ip != nil {
		if _, err := netip.ParseAddr(q.IP); err != nil {
			return q, problemAt(ip, "such as 203.0.113.7 or 2001:db8::1, without a port", "%s is not an address", quote(q.IP))
		}
	}
	if q.Headers, p = readHeaders(v.get("headers")); p != nil {
		return q, p
	}
	if q.Attributes, p = by.readAttributes(v.get("attributes")); p == nil && q.IP != "" {
		if q.Attributes == nil {
			q.Attributes = map[string]string{}
		}
		q.Attributes["ip"] = q.IP
	}
	return q, p
}

// readTarget reads what is limited: a request or a limit.
func (by *rules) readTarget(q *question) *problem {
	v := q.at
	if limit := v.get("limit"); limit != nil {
		if q.limit = by.policy.Limit(q.Limit); q.limit == nil {
			return problemAt(limit, meant(q.Limit, by.limits), "there is no limit %s", quote(q.Limit))
		}
		q.Cost = 1
		if cost := v.get("cost"); cost != nil {
			var p *problem
			q.Cost, p = cost.number(drossel.MaxQuota)
			return p
		}
		return nil
	}
	if cost := v.get("cost"); cost != nil {
		return problemAt(cost, "the policy says what a request costs its limits; a limit that is asked by its name takes a cost", "cost belongs to limit")
	}
	for _, name := range []string{"method", "path"} {
		if v.get(name) == nil {
			return problemAt(q.at, `send such as {"method":"GET","path":"/"}, or the name of a limit`, "%s is missing", name)
		}
	}
	switch path := v.get("path"); {
	case q.Method == "":
		return problemAt(v.get("method"), "such as GET", "the method is empty")
	case q.Path == "":
		return problemAt(path, "the path as it was sent, such as /api/orders", "the path is empty")
	case strings.Contains(q.Path, "?") && v.get("query") != nil:
		return problemAt(v.get("query"), "leave one of them out", "the path has a query too")
	}
	if path, query := splitTarget(q.Path); v.get("query") == nil {
		q.Path, q.Query = path, query
	} else {
		q.Path = path
	}
	return nil
}

func readHeaders(v *value) (http.Header, *problem) {
	if v == nil {
		return nil, nil
	}
	if v.kind != mapKind {
		return nil, v.wrong(mapKind)
	}
	h := http.Header{}
	for _, field := range v.items {
		name := textproto.CanonicalMIMEHeaderKey(field.name)
		lines := field.items
		switch field.kind {
		case textKind:
			lines = []*value{field}
		case listKind:
		default:
			return nil, problemAt(field, "", "a header must be a string or an array of strings, not %v", field.kind)
		}
		for _, line := range lines {
			text, p := line.string(maxBody)
			if p != nil {
				return nil, p
			}
			h[name] = append(h[name], text)
		}
	}
	return h, nil
}

// readAttributes reads values by the names of attributes.
func (by *rules) readAttributes(v *value) (map[string]string, *problem) {
	if v == nil {
		return nil, nil
	}
	if v.kind != mapKind {
		return nil, v.wrong(mapKind)
	}
	attributes := make(map[string]string, len(v.items))
	for _, field := range v.items {
		name, p := by.attribute(field)
		if p != nil {
			return nil, p
		}
		if _, twice := attributes[name]; twice {
			return nil, problemAt(field, "", "the attribute is there twice")
		}
		if attributes[name], p = field.string(maxBody); p != nil {
			return nil, p
		}
	}
	return attributes, nil
}

// attribute returns the name of an attribute as the policy has it.
func (by *rules) attribute(field *value) (string, *problem) {
	switch field.name {
	case "ip", "method", "host":
		return "", problemAt(field, "put it beside attributes", "%s is a field of the request", field.name)
	case "route", "class":
		return "", problemAt(field, "", "the policy says what the %s of a request is", field.name)
	}
	ref, err := by.policy.Identity.Ref(field.name)
	if err == nil {
		return ref.Name(), nil
	}
	hint := meant(field.name, by.policy.Identity.Names())
	if e, ok := errors.AsType[*identity.Error](err); ok && e.Field != "Name" {
		hint = e.Hint
	}
	return "", problemAt(field, hint, "the policy has no attribute %s", quote(field.name))
}

// ask is the question as the policy takes it.
func (q *question) ask() policy.Question {
	req := &identity.Request{Method: q.Method, Host: q.Host, Path: q.Path, Query: q.Query, Given: q.Attributes}
	if q.Headers != nil {
		req.Fields = q.Headers
	}
	return policy.Question{Request: req, Limit: q.limit, Cost: q.Cost}
}

// only reports why v is no object that has no other fields than known ones, nil if it is.
func (v *value) only(known []string) *problem {
	if v.kind != mapKind {
		return v.wrong(mapKind)
	}
	for _, item := range v.items {
		if !slices.Contains(known, item.name) {
			return problemAt(item, meant(item.name, known), "there is no field %s", quote(item.name))
		}
	}
	return nil
}

func (v *value) wrong(want kind) *problem {
	return problemAt(v, "", "must be %v, not %v", want, v.kind)
}

// flag reads a boolean; a field that is not there is false.
func (v *value) flag() (bool, *problem) {
	if v == nil {
		return false, nil
	}
	if v.kind != boolKind {
		return false, v.wrong(boolKind)
	}
	return v.boolean, nil
}

// string reads a string of at most so many bytes; a field that is not there is "".
func (v *value) string(most int) (string, *problem) {
	switch {
	case v == nil:
		return "", nil
	case v.kind != textKind:
		return "", v.wrong(textKind)
	case len(v.text) > most:
		return "", problemAt(v, "", "the string has %d bytes, more than %d", len(v.text), most)
	}
	return v.text, nil
}

// number reads a whole number from 0 to most.
func (v *value) number(most int64) (int64, *problem) {
	if v.kind != numberKind {
		return 0, v.wrong(numberKind)
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, problemAt(v, "", "must be a whole number, written in digits")
	case err != nil || n < 0 || n > most:
		return 0, problemAt(v, "", "must be 0 to %d", most)
	}
	return n, nil
}

// canonical is what is the same in two questions that ask the same.
func canonical(questions []question, o options) []byte {
	text, err := json.Marshal(struct {
		Questions    []question
		Peek, Settle bool
	}{questions, o.peek, o.settle})
	if err != nil { // there is nothing in a question that JSON does not have
		return nil
	}
	return text
}
