package policy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"pgregory.net/rapid"

	"github.com/drossel-io/drossel/internal/yamltree"
	"github.com/drossel-io/drossel/policy"
)

// The schema, as a reader of its own knows it; that it is one is checked against the
// schema of schemas.
var schema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(policy.Schema()))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.schema.json", document); err != nil {
		return nil, err
	}
	return c.Compile("policy.schema.json")
})

// checkSchema is what an editor says about a text: nil, an error about its YAML, or a
// *jsonschema.ValidationError.
func checkSchema(text string) error {
	s, err := schema()
	if err != nil {
		return err
	}
	var value any
	if err := yaml.UnmarshalWithOptions([]byte(text), &value, yaml.AllowDuplicateMapKey()); err != nil {
		return err
	}
	return s.Validate(value)
}

// Every policy of the tests, the examples and the documents has the form of the schema.
func TestSchemaOfGoodFiles(t *testing.T) {
	n := 0
	check := func(name, text string) {
		n++
		if err := checkSchema(text); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	for _, file := range goodFiles(t) {
		check(file, readFile(t, file))
	}
	documents, _ := filepath.Glob("../docs/*.md")
	for _, file := range append(documents, "../README.md") {
		for _, block := range strings.Split(readFile(t, file), "```yaml\n")[1:] {
			text, _, _ := strings.Cut(block, "```")
			if _, problems := policy.ParseWith("policy.yaml", []byte(text), everything); problems.Errors() == 0 {
				check(file, text)
			}
		}
	}
	if n < 60 {
		t.Errorf("%d policies, want all", n)
	}
}

// everything lets policies read what the files beside the tests hold.
var everything = &policy.ParseOptions{Files: policy.FilesIn("testdata"), Glob: policy.GlobIn("testdata")}

func readFile(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goodFiles are the policies that are files: good ones of the tests, examples, and
// what programs bring.
func goodFiles(t testing.TB) []string {
	t.Helper()
	files, _ := filepath.Glob("testdata/*.good.yaml")
	files = append(files, "../cmd/drossel/init.yaml")
	for _, folder := range []string{"../examples", "../deploy"} {
		err := filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".test.yaml") {
				return err
			}
			text := readFile(t, name)
			if folder == "../examples" || strings.Contains(text, "\nroutes:") {
				files = append(files, name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// Problems that a schema can see: keys, kinds of values, words and bounds.
var structural = regexp.MustCompile(`^unknown key|^key .* is not supported yet$|\bmust be (a |true|nothing)|\bmust be -?\d+ to -?\d+, not|is not one of|is not a (duration|size|name for)`)

// Where a bad file has such a problem the schema finds it too, at the same place. Files
// that are no YAML say so to an editor before it has a schema.
func TestSchemaOfBadFiles(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.bad.yaml")
	found := 0
	for _, file := range files {
		src, _ := readGolden(t, file)
		root, notYAML := yamltree.Parse([]byte(src), &yamltree.Format{Brace: func(string) string { return "" }})
		if notYAML != nil {
			continue
		}
		err := checkSchema(src)
		var places []string
		if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
			places = placesOf(root, invalid)
		}
		_, problems := parseGolden(filepath.Base(file), src)
		for _, p := range problems {
			if !structural.MatchString(p.Text) || p.File != filepath.Base(file) {
				continue
			}
			found++
			if !slices.Contains(places, fmt.Sprintf("%d:%d", p.Line, p.Column)) {
				t.Errorf("%s:%d:%d: %s: the schema finds nothing there, but %v: %v", file, p.Line, p.Column, p.Text, places, err)
			}
		}
	}
	if found < 40 {
		t.Errorf("%d problems, want more", found)
	}
}

// placesOf are the places in the file of all that the schema has found.
func placesOf(root *yamltree.Node, invalid *jsonschema.ValidationError) (places []string) {
	add := func(location []string, key bool) {
		at := root
		for i, name := range location {
			if at.Kind == yamltree.List {
				n, _ := strconv.Atoi(name)
				at = at.Items[n]
				continue
			}
			e := at.Entries[slices.IndexFunc(at.Entries, func(e yamltree.Entry) bool { return e.Key.Text == name })]
			if at = e.Value; key && i == len(location)-1 {
				at = e.Key
			}
		}
		places = append(places, fmt.Sprintf("%d:%d", at.Line, at.Column))
	}
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		switch k := e.ErrorKind.(type) {
		case *kind.AdditionalProperties:
			for _, name := range k.Properties {
				add(slices.Concat(e.InstanceLocation, []string{name}), true)
			}
		case *kind.PropertyNames: // whose location the library writes over
			eachEntry(root, func(e yamltree.Entry) {
				if e.Key.Text == k.Property {
					places = append(places, fmt.Sprintf("%d:%d", e.Key.Line, e.Key.Column))
				}
			})
		case *kind.Schema, *kind.Group:
		default:
			add(e.InstanceLocation, false)
		}
		for _, cause := range e.Causes {
			walk(cause)
		}
	}
	walk(invalid)
	return places
}

// eachEntry calls see for all entries of maps.
func eachEntry(n *yamltree.Node, see func(yamltree.Entry)) {
	for _, e := range n.Entries {
		see(e)
		eachEntry(e.Value, see)
	}
	for _, item := range n.Items {
		eachEntry(item, see)
	}
}

// sectionPlaces are where sections stand: a file with KEY in the place of a key.
var sectionPlaces = map[string]string{
	"":              "KEY: 1",
	"attribute":     "identity: {attributes: {a: {KEY: 1}}}",
	"candidate":     "limits: {a: {candidate: {KEY: 1}}}",
	"class":         "classes: {a: {KEY: 1}}",
	"cors":          "gateway: {cors: {KEY: 1}}",
	"decisions":     "decisions: {KEY: 1}",
	"decisions_tls": "decisions: {tls: {KEY: 1}}",
	"gateway":       "gateway: {KEY: 1}",
	"identity":      "identity: {KEY: 1}",
	"key_pair":      "gateway: {tls: {KEY: 1}}",
	"limit":         "limits: {a: {KEY: 1}}",
	"metrics":       "metrics: {KEY: 1}",
	"override":      "limits: {a: {overrides: [{KEY: 1}]}}",
	"paths":         "paths: {KEY: 1}",
	"response":      "response: {KEY: 1}",
	"route":         "routes:\n  /: {KEY: 1}",
	"store":         "store: {KEY: 1}",
	"store_tls":     "store: {url: 'rediss://localhost', tls: {KEY: 1}}",
	"timeouts":      "gateway: {timeouts: {KEY: 1}}",
}

// The schema has a section for each that the reader has, with the same keys.
func TestSchemaKeys(t *testing.T) {
	s, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]*jsonschema.Schema{"": s}
	eachSchema(s, map[*jsonschema.Schema]bool{}, func(sub *jsonschema.Schema) {
		if _, name, ok := strings.Cut(sub.Location, "#/$defs/"); ok && !strings.Contains(name, "/") {
			sections[name] = sub
		}
	})
	if got, want := slices.Sorted(maps.Keys(sections)), slices.Sorted(maps.Keys(sectionPlaces)); !slices.Equal(got, want) {
		t.Errorf("sections of the schema are %q, those of the test %q", got, want)
	}
	for name, place := range sectionPlaces {
		_, problems := policy.Parse("f", []byte(strings.Replace(place, "KEY", "zzzzzzzz", 1)))
		i := slices.IndexFunc(problems, func(p policy.Problem) bool { return p.Text == `unknown key "zzzzzzzz"` })
		if i < 0 {
			t.Fatalf("%s: %v", name, problems)
		}
		want := strings.Split(strings.TrimPrefix(problems[i].Hint, "known: "), ", ")
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(sections[name].Properties)); !slices.Equal(got, want) {
			t.Errorf("%s: keys of the schema are %q, those of the reader %q", name, got, want)
		}
		for key, property := range sections[name].Properties {
			if d := property.Description; len(d) < 8 || strings.HasPrefix(d, ";") || strings.HasSuffix(d, ".") {
				t.Errorf("%s: %s is described as %q", name, key, d)
			}
		}
	}
}

// eachSchema calls see for a schema and all below it.
func eachSchema(s *jsonschema.Schema, seen map[*jsonschema.Schema]bool, see func(*jsonschema.Schema)) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	see(s)
	below := append(slices.Collect(maps.Values(s.Properties)), s.AnyOf...)
	additional, _ := s.AdditionalProperties.(*jsonschema.Schema)
	for _, sub := range append(below, s.Ref, s.Items2020, additional) {
		eachSchema(sub, seen, see)
	}
}

// Bounds of numbers in the schema are those of the reader.
func TestSchemaBounds(t *testing.T) {
	const route = "routes: {/: {limits: [a]}}\n"
	boundsAt := map[string]string{
		"/properties/version":                             "version: N\nroutes: {/: unlimited}",
		"/$defs/gateway/properties/max_connections":       "gateway: {upstream: 'http://a', max_connections: N}\nroutes: {/: unlimited}",
		"/$defs/gateway/properties/listen/anyOf/1":        "gateway: {upstream: 'http://a', listen: N}\nroutes: {/: unlimited}",
		"/$defs/metrics/properties/listen/anyOf/1":        "metrics: {listen: N}\nroutes: {/: unlimited}",
		"/$defs/decisions/properties/listen/anyOf/1":      "decisions: {listen: N, token_file: a}\nroutes: {/: unlimited}",
		"/$defs/identity/properties/client_ip_depth":      "identity: {client_ip_from: x-forwarded-for, client_ip_depth: N}\nroutes: {/: unlimited}",
		"/$defs/identity/properties/ipv4_prefix":          "identity: {ipv4_prefix: N}\nroutes: {/: unlimited}",
		"/$defs/identity/properties/ipv6_prefix":          "identity: {ipv6_prefix: N}\nroutes: {/: unlimited}",
		"/$defs/limit/properties/status":                  "limits: {a: {rate: 1/s, status: N}}\n" + route,
		"/$defs/limit/properties/charge_on/items":         "limits: {a: {rate: 1/s, charge_on: [N]}}\n" + route,
		"/$defs/store/properties/instances/anyOf/1":       "store: {url: 'redis://a', instances: N}\nidentity: {secret: none}\nroutes: {/: unlimited}",
		"/$defs/route/properties/cost/anyOf/0":            "routes: {/: {limits: [1000M/s], cost: N}}",
		"/$defs/route/properties/cost/anyOf/1/additional": "limits: {a: 1000M/s}\nroutes: {/: {limits: [a], cost: {a: N}}}",
		"/$defs/class/properties/cost/anyOf/0":            "classes: {c: {limits: [1000M/s], cost: N}}\nroutes: {/: c}",
		"/$defs/class/properties/cost/anyOf/1/additional": "limits: {a: 1000M/s}\nclasses: {c: {limits: [a], cost: {a: N}}}\nroutes: {/: c}",
	}
	s, err := schema()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	eachSchema(s, map[*jsonschema.Schema]bool{}, func(sub *jsonschema.Schema) {
		if sub.Minimum == nil {
			return
		}
		_, place, _ := strings.Cut(sub.Location, "#")
		text, ok := boundsAt[strings.TrimSuffix(place, "Properties")]
		if !ok {
			t.Errorf("%s is not tested", place)
			return
		}
		seen++
		least, most := sub.Minimum.Num().Int64(), sub.Maximum.Num().Int64()
		for value, want := range map[int64]bool{least: true, most: true, least - 1: false, most + 1: false} {
			text := strings.ReplaceAll(text, "N", strconv.FormatInt(value, 10))
			_, problems := policy.Parse("f", []byte(text))
			if err := checkSchema(text); (err == nil) != want || (problems.Errors() == 0) != want {
				t.Errorf("%s: the schema says %v, the reader %v, want accepted: %v", text, err, problems, want)
			}
		}
	})
	if seen != len(boundsAt) {
		t.Errorf("%d places with bounds, want %d", seen, len(boundsAt))
	}
}

// What is missing, empty, or there twice is refused by both.
func TestSchemaRefuses(t *testing.T) {
	for _, text := range []string{
		"gateway: {listen: 8080}", "gateway: {upstream: 'http://a', tls: []}", "gateway: {upstream: 'http://a', tls: {cert: a}}",
		"gateway: {upstream: 'http://a', cors: []}", "gateway: {upstream: 'http://a', cors: ['https://a', 'https://a']}",
		"gateway: {upstream: 'http://a', cors: {credentials: true}}", "gateway: {upstream: localhost}", "decisions: {tls: {key: a}}",
		"decisions: {forward_auth: [nginx, nginx]}", "response: {headers: [x-delta, x-delta]}", "response: {body: }", "response: {retry_jitter: 10}",
		"identity: {attributes: {a: {fold: true}}}", "identity: {attributes: {ip: given}}", "identity: {attributes: {a: [given]}}",
		"limits: {unlimited: 1/s}", "limits: {a: 100}", "limits: {a: 100/x}", "limits: {a: {by: ip}}", "limits: {a: {rate: 1/s, candidate: {}}}",
		"limits: {a: {rate: 1/s, charge_on: []}}", "limits: {a: {rate: 1/s, charge_on: [401, 401]}}", "limits: {a: {rate: 1/s, rates: {method: {}}}}",
		"limits: {a: {rate: 1/s, overrides: [{when: {}, rate: 1/s}]}}", "limits: {a: {rate: 1/s, overrides: [{when: {method: []}, rate: 1/s}]}}",
		"classes: {preflight: {limits: []}}", "classes: {a: [1/s]}", "store: nowhere", "store: {prefix: 'a b'}", "shadow_until: tomorrow",
		"include: a.yaml", "metrics: ", "mode: off",
	} {
		text += "\nroutes: {/: unlimited}\n"
		if _, problems := policy.Parse("f", []byte(text)); problems.Errors() == 0 {
			t.Errorf("the reader accepts\n%s", text)
		}
		if err := checkSchema(text); err == nil {
			t.Errorf("the schema accepts\n%s", text)
		}
	}
}

// Where a scalar may stand, a variable may.
func TestSchemaVariables(t *testing.T) {
	text := `
version: ${A:-1}
gateway: {listen: "${A}", upstream: "${A}", h2c: "${A:-true}", max_body: "${A}", drain: "${A}s", max_connections: "${A}", cors: ["${A}"]}
store: {url: "${A}", instances: "${A}"}
identity: {trusted_proxies: ["${A}"], ipv4_prefix: "${A}", secret: "${A}", attributes: {a: {from: "${A}", fold: "${A}"}}}
limits:
  a: "${A} by ip"
  b: {rate: "${A}", status: "${A}", on_missing: "${A}", charge_on: ["${A}"], rates: {a: {b: "${A}"}}}
mode: ${A}
response: {headers: ["${A}"], retry_jitter: "${A}%"}
routes:
  /: ${A}
  /a: {limits: ["${A}"], cost: "${A}"}
  /b: {class: "${A}", cost: {a: "${A}"}}
`
	if err := checkSchema(text); err != nil {
		t.Error(err)
	}
}

// What the reader accepts is valid, whatever takes the place of a word of a good file.
func TestSchemaRefusesNoPolicy(t *testing.T) {
	var texts []string
	for _, file := range goodFiles(t) {
		src, _, _ := strings.Cut(readFile(t, file), wantMark)
		texts = append(texts, src)
	}
	word := regexp.MustCompile(`[^\s,\[\]{}:]+`)
	others := []string{
		"", "0", "7", "404", "-1", "1.5", "true", "null", "a", "[]", "{}", "[a]", "{a: b}", `"5"`, "5s", "1MiB", "10/s", "deny", "unlimited", "${A:-1}",
	}
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		policyText := rapid.SampledFrom(texts).Draw(t, "policy")
		words := word.FindAllStringIndex(policyText, -1)
		for range 10 {
			at, from := rapid.SampledFrom(words).Draw(t, "at"), rapid.SampledFrom(words).Draw(t, "from")
			put := rapid.OneOf(rapid.Just(policyText[from[0]:from[1]]), rapid.SampledFrom(others)).Draw(t, "put")
			text := policyText[:at[0]] + put + policyText[at[1]:]
			_, problems := policy.ParseWith("policy.yaml", []byte(text), everything)
			if problems.Errors() > 0 {
				continue
			}
			accepted++
			if err := checkSchema(text); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		}
	})
	if accepted < 100 && !testing.Short() { // rapid draws a fifth then
		t.Errorf("%d changed policies were accepted, want more", accepted)
	}
}
