package policy

import (
	"errors"
	"math"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/drossel-io/drossel/internal/yamltree"
)

// Store is the file's store section: where counts are kept. What it says of Redis is
// zero for memory.
type Store struct {
	// URL is "memory", or where Redis is. It may hold a password: Redacted is what to
	// show.
	URL string

	Deadline     time.Duration // how long Redis may take for a decision; 20ms unless said
	PasswordFile string        // holds the password of Redis; as Secret.File
	TLS          StoreTLS
	Prefix       string // of all keys in Redis; "drossel" unless said
	Instances    int    // processes that share the limits; 0 is auto: they are counted
	MaxMemory    int64  // of the keys in memory, in bytes; 256 MiB unless said

	Line, Column int // the place of the section

	passwordLine, passwordColumn int
}

// StoreTLS are files in PEM, and the name that the server's certificate should have.
// The zero StoreTLS trusts what the system trusts.
type StoreTLS struct {
	CA         string // who has signed the server's certificate; "" is whom the system trusts
	Cert, Key  string // of this client; "" if it has none
	ServerName string // "" is the URL's host
}

// What a Store has unless the file says otherwise.
const (
	DefaultMaxMemory = 256 << 20
	DefaultDeadline  = 20 * time.Millisecond
)

// The defaults of a store, and the bounds of what the file may say.
const (
	storeMemory = "memory"
	storePrefix = "drossel"
	maxPassword = 4096
)

// OnRedis reports whether counts are kept on Redis.
func (s Store) OnRedis() bool { return s.URL != storeMemory }

// String returns the kind of the store: memory or redis.
func (s Store) String() string {
	if s.OnRedis() {
		return "redis"
	}
	return storeMemory
}

// Redacted returns the URL without its password.
func (s Store) Redacted() string {
	if !s.OnRedis() {
		return storeMemory
	}
	u, hosts, err := parseRedis(s.URL)
	if err != nil {
		return s.String() // no such policy is made
	}
	before, after, _ := strings.Cut(u.Redacted(), hostsHere)
	return before + hosts + after
}

// hostsHere stands for hosts, and in no user name: it is not what an escaped one
// can be.
const hostsHere = "[::]"

// parseRedis parses a URL that may have several hosts, which is more than package
// net/url reads: u has another host, hosts are what stands there.
func parseRedis(text string) (u *url.URL, hosts string, err error) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return nil, "", errors.New("no URL")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	start := strings.LastIndexByte(rest[:end], '@') + 1
	u, err = url.Parse(scheme + "://" + rest[:start] + hostsHere + rest[end:])
	return u, rest[start:end], err
}

// defaultStore is what a file has that does not name a store.
func defaultStore() Store { return Store{URL: storeMemory, MaxMemory: DefaultMaxMemory} }

//nolint:gochecknoglobals // never changed
var (
	storeKeys = section{name: "store", keys: []keyDecl{
		{"url", storeURL, "memory, or the URL of a Redis; memory unless said"},
		{"max_memory", memorySizes, "of all keys in memory; on Redis, of those decided locally; 256MiB unless said"},
		{"deadline", storeDeadlines, "how long Redis may take for a decision; 20ms unless said"},
		{"password_file", valueForm{}, "holds the password of Redis; it is read again for each connection"},
		{"tls", &storeTLSKeys, "of a rediss:// URL; what the system trusts unless said"},
		{"prefix", valueForm{`^[A-Za-z0-9_.:-]{1,64}$`}, "of all keys in Redis; drossel unless said"},
		{"instances", eitherForm{wordForm{"auto"}, instanceNumbers}, "processes that share the limits; auto counts those that use the prefix"},
	}}
	storeTLSKeys = section{name: "store_tls", keys: []keyDecl{
		{"ca", valueForm{}, "a file in PEM: who has signed the server's certificate"},
		{"cert", valueForm{}, "a file in PEM: the certificate of this client"},
		{"key", valueForm{}, "a file in PEM: the key of the certificate"},
		{"server_name", valueForm{}, "what the server's certificate is for; the URL's host unless said"},
	}}
	storeURL        = textForm{`^memory$|://`}
	storeDeadlines  = durationForm{time.Millisecond, time.Second}
	memorySizes     = sizeForm{1 << 20, math.MaxInt64}
	instanceNumbers = numberForm{1, 10_000}
)

// redisKeys are the keys of the section that memory does not have.
func redisKeys() []string { return storeKeys.names()[2:] }

func (r *reader) readStore(n *node) {
	s := &r.policy.Store
	s.Line, s.Column = n.Line, n.Column
	if n.Kind != yamltree.Map {
		r.readStoreURL(n, "store")
		r.redisDefaults()
		return
	}
	f := r.fields(n, "store", &storeKeys)
	e, ok := f["url"]
	switch {
	case ok && !r.readStoreURL(e.Value, "url"):
		return
	case !ok && len(f) > 0 && !f.has("max_memory") || !ok && len(n.Entries) == 0:
		r.errorf(n, "add url: redis://127.0.0.1:6379, or write store: memory", "store has no url")
		return
	}
	r.redisDefaults()
	r.readMaxMemory(f)
	if s.OnRedis() {
		r.readRedis(f)
		return
	}
	for _, key := range redisKeys() {
		if e, ok := f[key]; ok {
			r.errorf(e.Key, "leave it out, or say where Redis is: url: redis://127.0.0.1:6379", "store: memory has no %s", key)
		}
	}
}

func (r *reader) redisDefaults() {
	if s := &r.policy.Store; s.OnRedis() {
		s.Deadline, s.Prefix = DefaultDeadline, storePrefix
	}
}

// readStoreURL reads where the store is. The text may hold a password, so no message
// repeats it.
func (r *reader) readStoreURL(n *node, what string) bool {
	text, ok := r.text(n, what)
	if !ok || text == storeMemory {
		return ok
	}
	hint := "write memory, or such as redis://127.0.0.1:6379"
	u, hosts, err := parseRedis(text)
	if err != nil {
		r.errorf(n, hint, "%s: this is neither memory nor the URL of a Redis", what)
		return false
	}
	switch u.Scheme {
	case "redis", "rediss", "valkey", "valkeys", "redis+sentinel", "rediss+sentinel", "unix":
	case "redis+cluster", "rediss+cluster":
		r.errorf(n, "use a single Redis, or Sentinel", "%s: a Redis Cluster is not supported yet", what)
		return false
	default:
		r.errorf(n, hint+"; rediss:// is with TLS, redis+sentinel:// with Sentinel", "%s: this is neither memory nor the URL of a Redis", what)
		return false
	}
	if fact, hint := wrongRedis(u, hosts); fact != "" {
		r.errorf(n, hint, "%s: %s", what, fact)
		return false
	}
	r.policy.Store.URL = text
	return true
}

// wrongRedis says what is wrong with a Redis' URL behind its scheme.
func wrongRedis(u *url.URL, hosts string) (fact, hint string) {
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	query := u.Query()
	switch sentinel := strings.HasSuffix(u.Scheme, "+sentinel"); {
	case u.Fragment != "" || len(query) > 1 || len(query) == 1 && (len(query["db"]) != 1 || !digits(query.Get("db"))):
		return "the URL of a Redis ends with the number of a database", "leave out ? or # and what follows; a # in a password is written %23"
	case u.Scheme == "unix":
		if hosts != "" || u.Path == "" {
			return "this is no path", "write such as unix:///run/redis.sock"
		}
		return "", ""
	case sentinel && (parts[0] == "" || len(parts) > 2):
		return "Sentinel needs the name of a master", "write such as redis+sentinel://host1,host2/mymaster"
	case sentinel:
		parts = parts[1:]
	case strings.Contains(hosts, ","):
		return "several hosts need Sentinel", "write redis+sentinel://host1,host2/mymaster"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if !validHost(host) {
			return "this is no host", "write such as redis://127.0.0.1:6379"
		}
	}
	if len(parts) > 1 || len(parts) == 1 && parts[0] != "" && (!digits(parts[0]) || len(query) > 0) {
		return "what follows the host is not the number of a database", "write such as redis://127.0.0.1:6379/0"
	}
	return "", ""
}

// Same reports whether o is the same store with the same options; where the file
// says so does not matter.
func (s Store) Same(o Store) bool {
	s.Line, s.Column, s.passwordLine, s.passwordColumn = o.Line, o.Column, o.passwordLine, o.passwordColumn
	return s == o
}

// secure reports whether a Redis' URL is one with TLS.
func (s Store) secure() bool {
	return strings.HasPrefix(s.URL, "rediss") || strings.HasPrefix(s.URL, "valkeys")
}

// validHost reports whether text is a host, perhaps with a port.
func validHost(text string) bool {
	host := text
	if i := strings.LastIndexByte(text, ':'); i > strings.LastIndexByte(text, ']') {
		if port := text[i+1:]; port == "" || !validPort(port) {
			return false
		}
		host = text[:i]
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		return net.ParseIP(strings.TrimSuffix(inner, "]")) != nil
	}
	return host != "" && !strings.ContainsAny(host, ":[] ")
}

func digits(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < '0' || c > '9' }) < 0
}

// readRedis reads what only a store on Redis has.
func (r *reader) readRedis(f fields) {
	s := &r.policy.Store
	if e, ok := f["deadline"]; ok {
		if d, ok := r.duration(e.Value, "deadline", storeDeadlines); ok {
			s.Deadline = d
		}
	}
	if e, ok := f["password_file"]; ok {
		r.readPasswordFile(e)
	}
	if e, ok := f["prefix"]; ok {
		if text, ok := r.text(e.Value, "prefix"); ok {
			if !validPrefix(text) {
				r.errorf(e.Value, "use 1 to 64 letters, digits, _ . - :", "prefix: %s is no prefix", quote(text))
			}
			s.Prefix = text
		}
	}
	if e, ok := f["instances"]; ok {
		r.readInstances(e.Value)
	}
	if e, ok := f["tls"]; ok {
		r.readStoreTLS(e)
	}
}

func (r *reader) readPasswordFile(e entry) {
	s := &r.policy.Store
	name := r.fileName(e.Value, "password_file", "name a file that holds the password")
	switch u, _, err := parseRedis(s.URL); {
	case name == "" || err != nil:
	case hasPassword(u):
		r.errorf(e.Key, "leave one of them out", "store: the url has a password and there is a password_file")
	default:
		s.PasswordFile, s.passwordLine, s.passwordColumn = filepath.Clean(name), e.Value.Line, e.Value.Column
	}
}

func hasPassword(u *url.URL) bool {
	_, ok := u.User.Password()
	return ok
}

func (r *reader) readInstances(n *node) {
	if n.Kind == yamltree.Text && n.Text == "auto" {
		return
	}
	if n.Kind != yamltree.Text || !digits(n.Text) || n.Text == "" {
		r.errorf(n, "write auto, or such as 4", "instances must be auto or a number")
		return
	}
	if v, ok := r.number(n, "instances", instanceNumbers); ok {
		r.policy.Store.Instances = int(v)
	}
}

func (r *reader) readStoreTLS(e entry) {
	s := &r.policy.Store
	f := r.fields(e.Value, "tls", &storeTLSKeys)
	if f == nil {
		return
	}
	r.readPEM(f, map[string]*string{"ca": &s.TLS.CA, "cert": &s.TLS.Cert, "key": &s.TLS.Key})
	if e, ok := f["server_name"]; ok {
		s.TLS.ServerName, _ = r.text(e.Value, "server_name")
	}
	switch {
	case !s.secure():
		r.errorf(e.Key, "write rediss:// instead of redis://", "store: tls is there, and the url is one without TLS")
	case f.has("cert") != f.has("key"):
		r.errorf(e.Key, "write tls: {cert: client.pem, key: client-key.pem}", "tls needs cert and key together")
	}
}

func (r *reader) readMaxMemory(f fields) {
	if e, ok := f["max_memory"]; ok {
		if v, ok := r.size(e.Value, "max_memory", memorySizes); ok {
			r.policy.Store.MaxMemory = v
		}
	}
}

// checkRedis reports what the rest of the file lacks for a store on Redis.
func (r *reader) checkRedis() {
	p := r.policy
	if !p.Store.OnRedis() {
		return
	}
	if p.Secret.File == "" && !p.Secret.None && r.problems.Errors() == 0 {
		r.errorf(&node{Line: p.Store.Line, Column: p.Store.Column}, "add identity: {secret_file: /run/secrets/drossel-key}, or secret: none if nobody else can read Redis",
			"store: on Redis keys are hashed under a secret, and there is none")
	}
}

// ReadPassword reads the password of Redis from the file of p.Store, through read as
// ParseOptions.Files has it; a line break at its end does not count. It is "" if
// there is no file. The error is Problems, and quotes nothing of the file.
func (p *Policy) ReadPassword(read func(name string) ([]byte, error)) (string, error) {
	s := p.Store
	if s.PasswordFile == "" {
		return "", nil
	}
	text, err := read(s.PasswordFile)
	fact := ""
	password := strings.TrimRight(string(text), "\r\n")
	switch {
	case err != nil:
		fact = reason(err).Error()
	case password == "":
		fact = "the file is empty"
	case len(password) > maxPassword || strings.ContainsAny(password, "\r\n\x00"):
		fact = "this is no password: it has one line of at most 4096 bytes"
	default:
		return password, nil
	}
	return "", Problems{{
		File: p.Name, Line: s.passwordLine, Column: s.passwordColumn,
		Text: "password_file: " + quote(s.PasswordFile) + ": " + fact,
	}}
}

func validPrefix(s string) bool {
	return s != "" && len(s) <= 64 && strings.IndexFunc(s, func(c rune) bool { return !nameRune(c) && c != ':' }) < 0
}
