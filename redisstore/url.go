package redisstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// Open returns a store on the Redis of an address:
//
//	redis://user:password@host:6379/0
//	rediss://host:6379/0                         the same over TLS
//	redis+sentinel://host:26379,host/name/0      the primary that sentinels call name
//	rediss+sentinel://host:26379,host/name/0     the same over TLS
//	unix:///run/redis.sock?db=0
//
// User, password and number of the database may be left out, and so may the ports.
// valkey:// and valkeys:// are other words for redis:// and rediss://.
//
// Open does not wait for Redis: it connects with the first decision, and again
// whenever a connection is lost. ctx is that of Open alone. No error holds the
// password.
func Open(ctx context.Context, address string, opts *Options) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, err := opts.complete()
	if err != nil {
		return nil, err
	}
	t, err := parseURL(address)
	if err != nil {
		return nil, err
	}
	c := &opened{connector: &connector{unix: t.unix}}
	c.option = t.option(o, c.connector)
	return newStore(c, solo{c, o.Timeout}, o, c.close), nil
}

// A target is what an address says.
type target struct {
	hosts    []string // or the path of a socket
	unix     bool
	tls      bool
	master   string // what the sentinels call it, "" without sentinels
	database int
	username string
	password string
}

// badURL is the error of an address. It shows none of it: where the password stands
// in a wrong address nobody knows.
func badURL(format string, args ...any) error {
	return fmt.Errorf("redisstore: the address of Redis: %s", fmt.Sprintf(format, args...))
}

func parseURL(address string) (*target, error) {
	scheme, _, ok := strings.Cut(address, "://")
	if !ok {
		return nil, badURL("it is no URL: write redis://host:6379")
	}
	t := &target{}
	port := "6379"
	switch scheme {
	case "redis", "valkey":
	case "rediss", "valkeys":
		t.tls = true
	case "redis+sentinel", "rediss+sentinel":
		port, t.tls = "26379", scheme == "rediss+sentinel"
	case "unix":
		t.unix = true
	case "redis+cluster", "rediss+cluster":
		return nil, badURL("redis+cluster:// is not supported yet; use one server, or sentinels")
	default:
		return nil, badURL("%.20q is no scheme for Redis: use redis, rediss, redis+sentinel, rediss+sentinel or unix", scheme)
	}
	// Several hosts are no host of package net/url.
	u, hosts, err := cutHosts(address)
	if err != nil {
		return nil, err
	}
	if u.User != nil {
		t.username = u.User.Username()
		t.password, _ = u.User.Password()
	}
	if t.unix {
		t.hosts = []string{u.Path}
		if u.Path == "" || hosts != "" {
			return nil, badURL("a socket is written unix:///path/to/redis.sock")
		}
		return t, t.readQuery(u, "")
	}
	path := strings.Trim(u.Path, "/")
	if strings.HasSuffix(scheme, "+sentinel") {
		t.master, path, _ = strings.Cut(path, "/")
		if t.master == "" {
			return nil, badURL("the name that the sentinels have for the primary is missing: redis+sentinel://host/name")
		}
	}
	if t.hosts, err = hostsOf(hosts, port); err != nil {
		return nil, err
	}
	if len(t.hosts) > 1 && t.master == "" {
		return nil, badURL("it names %d hosts, but only sentinels may be several", len(t.hosts))
	}
	return t, t.readQuery(u, path)
}

// cutHosts parses an address without its hosts, which it returns.
func cutHosts(address string) (u *url.URL, hosts string, err error) {
	scheme, rest, _ := strings.Cut(address, "://")
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	user := ""
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, authority = authority[:i+1], authority[i+1:]
	}
	if u, err = url.Parse(scheme + "://" + user + "host" + path); err != nil {
		return nil, "", badURL("it cannot be read; special characters of a password are written as %%40 for @, %%2F for /, %%3A for :")
	}
	return u, authority, nil
}

// hostsOf are host, host:port, … with their ports.
func hostsOf(list, port string) (hosts []string, err error) {
	for host := range strings.SplitSeq(list, ",") {
		if host == "" {
			return nil, badURL("a host is missing")
		}
		if _, p, err := net.SplitHostPort(host); err == nil {
			if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
				return nil, badURL("a port is a number from 1 to 65535")
			}
			hosts = append(hosts, host)
			continue
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		hosts = append(hosts, net.JoinHostPort(host, port))
	}
	return hosts, nil
}

func (t *target) readQuery(u *url.URL, path string) (err error) {
	for name, values := range u.Query() {
		if name != "db" || len(values) != 1 || path != "" {
			return badURL("the only parameter it may have is db, and that once")
		}
		path = values[0]
	}
	if path == "" {
		return nil
	}
	if t.database, err = strconv.Atoi(path); err != nil || t.database < 0 {
		return badURL("a database is a number from 0")
	}
	return nil
}

// sentinelRefresh is how often the sentinels are asked for the primary beside what they
// tell by themselves, which can be missed.
const sentinelRefresh = 2 * time.Second

// option is how rueidis connects to t. Its pool of plain connections suits a queue
// that joins calls by itself: each script has a connection to itself, whose deadline
// ends with it.
func (t *target) option(o *Options, c *connector) rueidis.ClientOption {
	opt := rueidis.ClientOption{
		InitAddress: t.hosts, SelectDB: t.database, Username: t.username, Password: t.password,
		DialCtxFn: c.dial, ConnWriteTimeout: o.Timeout, BlockingPoolSize: o.Connections + 1,
		ReadBufferEachConn: 64 << 10, WriteBufferEachConn: 64 << 10, RingScaleEachConn: 8,
		DisableRetry: true, DisableCache: true, DisableAutoPipelining: true,
		ForceSingleClient: t.master == "", ClientSetInfo: rueidis.DisableClientSetInfo,
	}
	opt.Dialer.Timeout = o.Timeout
	if o.Username != "" {
		opt.Username = o.Username
	}
	if o.Password != "" {
		opt.Password = o.Password
	}
	if o.PasswordFile != "" {
		user := opt.Username
		opt.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			text, err := os.ReadFile(o.PasswordFile)
			if err != nil {
				return rueidis.AuthCredentials{}, &dialError{err}
			}
			return rueidis.AuthCredentials{Username: user, Password: strings.TrimRight(string(text), "\r\n")}, nil
		}
	}
	if t.tls {
		opt.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if o.TLS != nil {
			opt.TLSConfig = o.TLS
		}
	}
	if t.master != "" {
		opt.Sentinel = rueidis.SentinelOption{
			MasterSet: t.master, Dialer: opt.Dialer, TLSConfig: opt.TLSConfig,
			Username: o.SentinelUsername, Password: o.SentinelPassword,
			TopologyRefreshInterval: sentinelRefresh,
		}
	}
	return opt
}
