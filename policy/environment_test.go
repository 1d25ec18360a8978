package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/drossel-io/drossel/policy"
)

const routesOnly = "\nroutes: {/: unlimited}\n"

func values(t *testing.T, env map[string]string, items string) []string {
	t.Helper()
	src := "identity: {attributes: {a: {from: given, values: [" + items + "]}}}" + routesOnly
	p, problems := policy.ParseWith("f", []byte(src), &policy.ParseOptions{Env: lookUp(env)})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	ref, err := p.Identity.Ref("a")
	if err != nil {
		t.Fatal(err)
	}
	return ref.Attribute().Values
}

// What a variable holds is text, whatever is in it.
func TestVariables(t *testing.T) {
	env := map[string]string{"A": "1", "EMPTY": "", "YAML": "x, y: {z}\n- #", "DOLLAR": "${A} $${A} $id", "_a9": "u"}
	for item, want := range map[string]string{
		`${A}`: "1", `${A}${A}-${A}`: "11-1", `${A:-2}`: "1", `${B:-2}`: "2", `${EMPTY:-2}`: "2", `x${EMPTY}`: "x",
		`x${B:-}`: "x", `${B:-a:-b-}`: "a:-b-", `${YAML}`: "x, y: {z}\n- #", `${DOLLAR}`: "${A} $${A} $id", `$${A}`: "${A}",
		`$$${A}`: "$${A}", `$A`: "$A", `$$`: "$$", `a}$`: "a}$", `${_a9}`: "u", `$${${A}}`: "${1}",
	} {
		if got := values(t, env, `"`+item+`"`); got[0] != want {
			t.Errorf("%s is %q, want %q", item, got[0], want)
		}
	}
}

func TestVariablesOfPolicy(t *testing.T) {
	src := `
gateway: {listen: "${PORT}", upstream: "${UP:-http://127.0.0.1:3000}"}
all_routes: ["${RATE} by ip", "${NAME}"]
identity: {trusted_proxies: [10.0.0.0/8, "${NET}"]}
limits: {a: {rate: "${RATE}", by: ip}}
routes:
  get  /x/: {limits: [{rate: 1/s, by: ip}]}
  post /x/: {limits: [{rate: "${RATE}", by: ip}]}
`
	env := map[string]string{"PORT": "80", "RATE": "5/s", "NAME": "a", "NET": "127.0.0.1"}
	p, problems := policy.ParseWith("f", []byte(src), &policy.ParseOptions{Env: lookUp(env)})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	want := []*policy.Variable{
		{Path: []string{"gateway", "listen"}, Text: "${PORT}"},
		{Path: []string{"limits", "all_routes-1"}, Text: "${RATE} by ip"},
		{Path: []string{"all_routes", "1"}, Text: "${NAME}"},
		{Path: []string{"identity", "trusted_proxies", "1"}, Text: "${NET}", List: []string{"10.0.0.0/8", "${NET}"}},
		{Path: []string{"limits", "a", "rate"}, Text: "${RATE}"},
		{Path: []string{"limits", "POST-x-all-1", "rate"}, Text: "${RATE}"},
	}
	if diff := cmp.Diff(want, p.Variables, cmpopts.IgnoreUnexported(policy.Variable{})); diff != "" {
		t.Errorf("variables (-want +got)\n%s", diff)
	}
}

// Policies that read other values are other policies.
func TestFingerprintOfVariables(t *testing.T) {
	fingerprint := func(src string, env map[string]string) string {
		p, problems := policy.ParseWith("f", []byte(src+routesOnly), &policy.ParseOptions{Env: lookUp(env)})
		if err := problems.Err(); err != nil {
			t.Fatal(err)
		}
		return p.Fingerprint
	}
	src := `gateway: {listen: ":${A}${B}", upstream: "http://h"}`
	same := fingerprint(src, map[string]string{"A": "8", "B": "080"})
	if got := fingerprint(src, map[string]string{"A": "8", "B": "080", "C": "x"}); got != same {
		t.Errorf("a variable that the file does not read makes %s of %s", got, same)
	}
	for _, env := range []map[string]string{{"A": "80", "B": "80"}, {"A": "808", "B": "0"}, {"A": "8", "B": "081"}} {
		if got := fingerprint(src, env); got == same {
			t.Errorf("with %v the policy is still %s", env, got)
		}
	}
	if len(same) != 8 {
		t.Errorf("fingerprint %q", same)
	}
	plain := `gateway: {listen: ":${A:-80}", upstream: "http://h"}`
	p, _ := policy.Parse("f", []byte(plain+routesOnly))
	if got := fingerprint(plain, nil); got != p.Fingerprint {
		t.Errorf("a default makes %s of %s", got, p.Fingerprint)
	}
}

// Whatever is wrong, no message quotes what a variable holds, in whatever place of
// whatever file of testdata it stands.
func TestVariablesAreHidden(t *testing.T) {
	const secret = "hunter2-zq"
	env := lookUp(map[string]string{"S": secret})
	hidden := 0
	for _, file := range goldenFiles(t) {
		src, _ := readGolden(t, file)
		for i, c := range src {
			if c != ':' && c != '[' && c != ',' || i%3 != 0 || i+2 >= len(src) {
				continue
			}
			for _, end := range []int{strings.IndexAny(src[i+1:], ",]}\n"), 1} {
				if end < 0 {
					continue
				}
				text := src[:i+1] + ` "${S}"` + src[i+1+end:]
				_, problems := policy.ParseWith("f", []byte(text), &policy.ParseOptions{Env: env})
				for _, p := range problems {
					if strings.Contains(p.String(), "hunter2") || strings.Contains(p.String(), "zq") {
						t.Fatalf("%s\n%s", p, text)
					}
					if strings.Contains(p.Text, "what ${S} holds") {
						hidden++
					}
				}
			}
		}
	}
	if hidden < 100 {
		t.Errorf("only %d messages were about a variable", hidden)
	}
}

func TestVariablesAreBounded(t *testing.T) {
	env := map[string]string{"LONG": strings.Repeat("x", 1<<16), "ODD": "\xff"}
	for src, want := range map[string]string{
		"mode: ${ODD}": "what ${ODD} holds is not UTF-8",
		"identity: {attributes: {a: {from: given, values: [" + strings.Repeat(`"${LONG}", `, 5) + "]}}}": "more than 262144 bytes",
	} {
		_, problems := policy.ParseWith("f", []byte(src), &policy.ParseOptions{Env: lookUp(env)})
		if len(problems) == 0 || !strings.Contains(problems[0].Text, want) {
			t.Errorf("problems %.200v, want %q", problems, want)
		}
	}
}

func TestLoadWithEnvironment(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte("routes: {/: {limits: [\"${RATE} by ip\"]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Load(path, nil); err == nil || !strings.Contains(err.Error(), "${RATE} is not set") {
		t.Errorf("without an environment: %v", err)
	}
	lim, err := policy.Load(path, &policy.Options{Env: lookUp(map[string]string{"RATE": "7/m"})})
	if err != nil {
		t.Fatal(err)
	}
	if got := lim.Policy().Limits[0].Budget.Limit().String(); got != "7/m" {
		t.Errorf("the limit is %s", got)
	}
}
