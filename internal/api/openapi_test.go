package api_test

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// properties are the names of the fields of schemas.
func properties(t *testing.T, schemas ...string) []string {
	t.Helper()
	var names []string
	for _, schema := range schemas {
		names = append(names, fields(t, described(t).at("components", "schemas", schema))...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// fields are the names of the fields of a schema, and of those that it is made of.
func fields(t *testing.T, schema any) []string {
	t.Helper()
	s, ok := schema.(map[string]any)
	if !ok {
		t.Fatalf("no schema: %v", schema)
	}
	p, _ := s["properties"].(map[string]any)
	names := slices.Collect(maps.Keys(p))
	for _, parts := range []any{s["allOf"], s["anyOf"]} {
		parts, _ := parts.([]any)
		for _, part := range parts {
			names = append(names, fields(t, part)...)
		}
	}
	if ref, ok := s["$ref"].(string); ok {
		names = append(names, fields(t, described(t).at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...))...)
	}
	return names
}

// The description has the fields that the server takes, and no others.
func TestOpenAPIFields(t *testing.T) {
	s := serve(t, ordersPolicy)
	id := s.held(t, `{"limit":"tokens","attributes":{"tenant":"t"},"settle":true}`)
	for _, tt := range []struct {
		path, body string
		schemas    []string
	}{
		{"/v1/decide", `{"zzzzzzzz":1}`, []string{"Question", "Together"}},
		{"/v1/decide", `{"requests":[{"zzzzzzzz":1}]}`, []string{"Question"}},
		{"/v1/settle", `{"id":"` + id + `","zzzzzzzz":1}`, []string{"SettleCall"}},
		{"/v1/renew", `{"id":"` + id + `","zzzzzzzz":1}`, []string{"RenewCall"}},
	} {
		_, answer := s.post(t, tt.path, tt.body)
		hint, _ := answer["hint"].(string)
		known := strings.Split(strings.TrimPrefix(hint, "known: "), ", ")
		slices.Sort(known)
		if want := properties(t, tt.schemas...); !slices.Equal(known, want) {
			t.Errorf("%s takes %v, the description has %v", tt.path, known, want)
		}
	}
}

// The examples of the description are what it describes, and those of decide are answered.
func TestOpenAPIExamples(t *testing.T) {
	s := serve(t, ordersPolicy)
	paths, _ := described(t).at("paths").(map[string]any)
	seen := 0
	for path := range paths {
		examples, _ := described(t).at("paths", path, "post", "requestBody", "content", "application/json", "examples").(map[string]any)
		for name, example := range examples {
			text, err := json.Marshal(example.(map[string]any)["value"])
			if err != nil {
				t.Fatal(err)
			}
			seen++
			status, answer := s.post(t, path, string(text))
			if path == "/v1/decide" && status != 200 || status != 200 && status != 404 {
				t.Errorf("%s %s: status %d: %v", path, name, status, answer)
			}
		}
	}
	if seen < 6 {
		t.Errorf("%d examples", seen)
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	s := serve(t, ordersPolicy)
	res, err := s.client.Get(s.url + "/v1/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || string(got) != string(want) {
		t.Errorf("status %d, %d bytes, want the file of %d", res.StatusCode, len(got), len(want))
	}
}
