//go:build unix

package redisstore

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/redisstore/redistest"
)

// eventually calls try until it succeeds, for as long as a loaded machine may need.
func eventually(t testing.TB, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// takeOne takes a unit of b for key.
func takeOne(ctx context.Context, s *Store, b *drossel.Budget, key string) (*drossel.Batch, error) {
	batch := batchOf(one(b, key))
	return batch, s.Take(ctx, batch)
}

// wantError checks that err is an *Error of a kind after which nothing was done.
func wantError(t testing.TB, what string, err error, kind Kind) {
	t.Helper()
	own, ok := errors.AsType[*Error](err)
	if !ok || own.Kind != kind || !own.NotExecuted() {
		t.Errorf("%s: error is %v (%+v), want kind %s and nothing done", what, err, own, kind)
	}
}

// Four clients, each with 50 requests at one instant, on 50 an hour: 50 are admitted,
// every time.
func TestRaceOfClients(t *testing.T) {
	server := start(t)
	var clients [4]*Store
	for i := range clients {
		clients[i] = openStore(t, server.URL(), nil)
	}
	for _, limit := range []string{"50/h", "50/366d fixed_window", "50/h sliding_log", "50/366d sliding_counter", "50/month calendar", "50 in flight for 1h"} {
		b := parse(t, "race", limit)
		for repeat := range 50 {
			var admitted atomic.Int64
			var calls sync.WaitGroup
			begin := make(chan struct{})
			for i := range 200 {
				calls.Go(func() {
					<-begin
					batch, err := takeOne(t.Context(), clients[i%len(clients)], b, fmt.Sprint("client-", repeat))
					if err != nil {
						t.Error(err)
					}
					if batch.Allowed {
						admitted.Add(1)
					}
				})
			}
			close(begin)
			calls.Wait()
			if n := admitted.Load(); n != 50 {
				t.Errorf("%s: %d are admitted, want 50", limit, n)
			}
		}
	}
}

// Scripts that Redis has forgotten are sent again, and nobody notices.
func TestScriptFlush(t *testing.T) {
	server := start(t)
	s := openStore(t, server.URL(), nil)
	b, mixed := parse(t, "flush", "1M/s"), parse(t, "flush-mixed", "1M/s sliding_counter")
	stop := make(chan struct{})
	var calls sync.WaitGroup
	var made atomic.Int64
	for i := range 16 {
		calls.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				batch := batchOf(one([]*drossel.Budget{b, mixed}[i%2], "alice"))
				err := s.Take(t.Context(), batch)
				if err == nil {
					batch.Checks[0].Final = 0
					err = s.Settle(t.Context(), batch)
				}
				if err != nil {
					t.Error(err)
					return
				}
				made.Add(1)
			}
		})
	}
	for range 200 {
		server.Do("SCRIPT", "FLUSH")
	}
	eventually(t, "decisions go on", func() error {
		if made.Load() < 200 {
			return errors.New("too few decisions")
		}
		return nil
	})
	close(stop)
	calls.Wait()
}

// A server that ends and comes back: errors that say that nothing was done, at once,
// and then decisions again without a restart here.
func TestRestart(t *testing.T) {
	server := start(t)
	s := openStore(t, server.URL(), nil)
	b := parse(t, "restart", "1000/h")
	warm := func() { // every connection has been used
		var calls sync.WaitGroup
		for range 200 {
			calls.Go(func() {
				if _, err := takeOne(t.Context(), s, b, "alice"); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
	}
	warm()
	server.Kill()
	for range 20 {
		_, err := takeOne(t.Context(), s, b, "alice")
		wantError(t, "while it is away", err, Connection)
	}
	server.Restart()
	warm()
}

// A server that is silent: a caller waits for its own deadline and no longer, few
// calls are under way, and when it speaks again all is well.
func TestSilence(t *testing.T) {
	server := start(t)
	s := openStore(t, server.URL(), &Options{Connections: 4, MaxWaiting: 500, Timeout: 250 * time.Millisecond})
	b := parse(t, "silence", "100000/h")
	var unknown atomic.Int64 // calls that may have been charged, and one that was
	eventually(t, "it decides", func() error {
		unknown.Add(1)
		_, err := takeOne(t.Context(), s, b, "alice")
		return err
	})
	server.Pause()
	before := runtime.NumGoroutine()
	var calls sync.WaitGroup
	for range 40 {
		for range 100 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				_, err := takeOne(ctx, s, b, "alice")
				own, ok := errors.AsType[*Error](err)
				switch {
				case !ok:
					t.Errorf("a silent server's error is %v", err)
				case !own.NotExecuted():
					unknown.Add(1)
				}
			})
		}
		calls.Wait()
	}
	eventually(t, "nothing is left of 4000 calls but what the connections need", func() error {
		n := runtime.NumGoroutine()
		if n > before+20 {
			return fmt.Errorf("%d goroutines, %d were there before", n, before)
		}
		return nil
	})
	server.Resume()
	eventually(t, "it decides again", func() error {
		unknown.Add(1)
		_, err := takeOne(t.Context(), s, b, "alice")
		return err
	})
	var d drossel.Decision
	eventually(t, "it says what is left", func() (err error) {
		d, err = s.Get(t.Context(), b, "alice")
		return err
	})
	// What may have run is at most what nobody knew of; the rest has not.
	if used := 100_000 - d.Remaining; used > unknown.Load() {
		t.Errorf("%d units are charged, and only %d calls may have been", used, unknown.Load())
	}
}

// The primary at an address becomes a replica, and the address leads to another
// server: nothing is done on the old one, and the store leaves it without a restart,
// although its connections would hold.
func TestDemoted(t *testing.T) {
	old, next := start(t), start(t)
	var leadsTo atomic.Pointer[string]
	leadsTo.Store(&old.Addr)
	s := openStore(t, "redis://"+forward(t, &leadsTo), nil)
	b := parse(t, "demoted", "100/h")
	if _, err := takeOne(t.Context(), s, b, "alice"); err != nil {
		t.Fatal(err)
	}
	old.Do("REPLICAOF", "127.0.0.1", strconv.Itoa(next.Port))
	for range 10 {
		_, err := takeOne(t.Context(), s, b, "alice")
		own, ok := errors.AsType[*Error](err)
		if !ok || !own.NotExecuted() || own.Kind != Server {
			t.Errorf("on a replica: %v", err)
		}
	}
	leadsTo.Store(&next.Addr)
	for range 10 { // connections that lead to the old one are given up with what they answer
		_, _ = takeOne(t.Context(), s, b, "alice")
	}
	if _, err := takeOne(t.Context(), s, b, "alice"); err != nil {
		t.Errorf("on the new primary: %v", err)
	}
}

// forward listens at an address that leads to another: new connections to where it
// leads by then.
func forward(t *testing.T, to *atomic.Pointer[string]) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				up, err := net.Dial("tcp", *to.Load())
				if err != nil {
					return
				}
				defer up.Close()
				go func() {
					_, _ = io.Copy(up, c)
					_ = up.Close()
				}()
				_, _ = io.Copy(c, up)
			}()
		}
	}()
	return l.Addr().String()
}

// Sentinels: the primary dies, the replica takes over, and the store follows with what
// was charged.
func TestSentinel(t *testing.T) {
	sentinels := redistest.StartSentinel(t, strings.TrimSpace(blocks(t, "user drossel ")[0]))
	s := openStore(t, strings.Replace(sentinels.URL(), "://", "://drossel:change-me@", 1), nil)
	b := parse(t, "sentinel", "100/366d")
	for range 10 {
		if _, err := takeOne(t.Context(), s, b, "alice"); err != nil {
			t.Fatal(err)
		}
	}
	sentinels.Primary.Do("WAIT", "1", "10000")
	sentinels.Primary.Kill()
	sentinels.AwaitFailover()
	var batch *drossel.Batch
	unknown := int64(0) // calls that may have been charged
	eventually(t, "it decides again", func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		batch, err = takeOne(ctx, s, b, "alice")
		if own, ok := errors.AsType[*Error](err); ok && !own.NotExecuted() {
			unknown++
		}
		return err
	})
	if left := batch.Checks[0].Remaining; left > 89 || left < 89-unknown {
		t.Errorf("after the failover %d are left, want 89, or less by %d that were tried", left, unknown)
	}
	scanKeys(t, sentinels.Replica)
}

// A memory that is full, a disk that is, a user who may not.
func TestRefusals(t *testing.T) {
	server := start(t, "maxmemory 3mb", "maxmemory-policy noeviction")
	s := openStore(t, server.URL(), nil)
	b := parse(t, "refusals", "100/h")
	if _, err := takeOne(t.Context(), s, b, "alice"); err != nil {
		t.Fatal(err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1mb")
	_, err := takeOne(t.Context(), s, b, "alice")
	wantError(t, "out of memory", err, Server)
	server.Do("CONFIG", "SET", "maxmemory", "0")
	server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	_, err = takeOne(t.Context(), s, b, "alice")
	wantError(t, "without its replicas", err, Server)
	server.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	server.Do("ACL", "SETUSER", "weak", "on", "nopass", "~other:*", "+@all")
	weak := openStore(t, "redis://weak:x@"+server.Addr, nil)
	_, err = takeOne(t.Context(), weak, b, "alice")
	wantError(t, "a user without the keys", err, Permission)
	server.Do("ACL", "SETUSER", "setless", "on", "nopass", "~*", "+@all", "-set")
	_, err = takeOne(t.Context(), openStore(t, "redis://setless:x@"+server.Addr, nil), b, "alice")
	if own, ok := errors.AsType[*Error](err); !ok || own.Kind != Permission || !strings.Contains(err.Error(), "ACL") {
		t.Errorf("a user who may not do all that a script does: %v", err)
	}
	if d, err := s.Get(t.Context(), b, "alice"); err != nil || d.Remaining != 99 {
		t.Errorf("%d are left, error %v, want 99", d.Remaining, err)
	}
}

// What somebody else has written under a key is an error for the batch that meets it,
// and for no other.
func TestForeignState(t *testing.T) {
	server := redistest.Start(t)
	s := openStore(t, server.URL(), nil)
	for i, limit := range everyLimit() {
		b := parse(t, fmt.Sprint("foreign-", i), limit)
		key := s.key(b.StateID(), &drossel.Check{Budget: b, Key: "alice"})
		for _, write := range [][]string{{"SET", key, "x"}, {"SET", key, "1 x"}, {"HSET", key, "a", "b"}, {"RPUSH", key, "1"}, {"RPUSH", key, "a", "b", "c"}, {"ZADD", key, "1", "x"}} {
			server.Do("DEL", key)
			server.Do(write...)
			var calls sync.WaitGroup
			for range 20 {
				calls.Go(func() {
					if _, err := takeOne(t.Context(), s, b, "bobby"); err != nil {
						t.Errorf("%s: another key than %v: %v", limit, write[:1], err)
					}
				})
			}
			_, err := takeOne(t.Context(), s, b, "alice")
			if write[0] != "ZADD" || !strings.Contains(limit, "in flight") { // that one is a state
				wantError(t, fmt.Sprintf("%s: %q", limit, write), err, State)
			}
			calls.Wait()
		}
	}
}

// A calendar limit needs the two clocks in the same window or the next; else it is an
// error, never a window of nobody's.
func TestSkew(t *testing.T) {
	server := start(t)
	s := openStore(t, server.URL(), nil)
	b := parse(t, "skew", "5/day calendar")
	for days, ok := range map[int64]bool{-2: false, -1: true, 0: true, 1: true, 2: false} {
		batch := batchOf(one(b, "alice"))
		now := time.Now().UnixMicro()
		q := s.question(batch, &moment{now + days*24*3600*1_000_000})
		q.at = ""
		err := s.ask(t.Context(), q, batch, nil)
		if ok && err != nil {
			t.Errorf("%d days apart: %v", days, err)
		}
		if !ok {
			wantError(t, fmt.Sprint(days, " days apart"), err, Skew)
		}
	}
	if d, err := s.Get(t.Context(), b, "alice"); err != nil || d.Remaining != 2 {
		t.Errorf("%d are left, error %v, want 2", d.Remaining, err)
	}
}

// A client of the caller's.
func TestNewOnRueidis(t *testing.T) {
	server := start(t)
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := newOn(t, FromRueidis(c), nil)
	b := parse(t, "own", "50/h")
	var admitted atomic.Int64
	var calls sync.WaitGroup
	for range 200 {
		calls.Go(func() {
			batch, err := takeOne(t.Context(), s, b, "alice")
			if err != nil {
				t.Error(err)
			}
			if batch.Allowed {
				admitted.Add(1)
			}
		})
	}
	calls.Wait()
	if n := admitted.Load(); n != 50 {
		t.Errorf("%d are admitted, want 50", n)
	}
	if entries, _, err := s.List(t.Context(), b, ""); err != nil || len(entries) != 1 {
		t.Errorf("%d entries, error %v, want 1", len(entries), err)
	}
}

// Passwords: in the address, in the options, in a file that changes.
func TestPassword(t *testing.T) {
	server := start(t)
	server.Do("ACL", "SETUSER", "shop", "on", ">first", "~*", "+@all")
	b := parse(t, "password", "100/h")
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	address := "redis://shop@" + server.Addr
	for _, tt := range []struct {
		address string
		options Options
	}{
		{"redis://shop:first@" + server.Addr, Options{}},
		{"redis://" + server.Addr, Options{Username: "shop", Password: "first"}},
		{address, Options{PasswordFile: file}},
	} {
		s := openStore(t, tt.address, &tt.options)
		if _, err := takeOne(t.Context(), s, b, "alice"); err != nil {
			t.Errorf("%+v: %v", tt.options, err)
		}
	}
	s := openStore(t, "redis://shop:wrong@"+server.Addr, nil)
	_, err := takeOne(t.Context(), s, b, "alice")
	wantError(t, "a wrong password", err, Permission)
	if err == nil || strings.Contains(err.Error(), "wrong@") || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
	rotating := openStore(t, address, &Options{PasswordFile: file})
	if _, err := takeOne(t.Context(), rotating, b, "alice"); err != nil {
		t.Fatal(err)
	}
	server.Do("ACL", "SETUSER", "shop", "resetpass", ">second")
	server.Do("CLIENT", "KILL", "USER", "shop")
	write("second")
	if _, err := takeOne(t.Context(), rotating, b, "alice"); err != nil {
		t.Errorf("after the password has changed: %v", err)
	}
	missing := openStore(t, address, &Options{PasswordFile: file + ".none"})
	_, err = takeOne(t.Context(), missing, b, "alice")
	wantError(t, "a missing file", err, Connection)
}

func TestSocket(t *testing.T) {
	server := start(t)
	s := openStore(t, "unix://"+server.Socket+"?db=3", nil)
	if _, err := takeOne(t.Context(), s, parse(t, "socket", "5/h"), "alice"); err != nil {
		t.Fatal(err)
	}
	if n := server.Do("DBSIZE"); n != int64(0) {
		t.Errorf("database 0 has %v keys, want none", n)
	}
}

// TLS: the server's certificate must be of the roots that are given.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	roots := writeCertificate(t, dir)
	server := start(t)
	port := 0
	eventually(t, "a port for TLS", func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		port = l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		for name, value := range map[string]string{"tls-cert-file": "cert.pem", "tls-key-file": "key.pem", "tls-ca-cert-file": "cert.pem"} {
			server.Do("CONFIG", "SET", name, filepath.Join(dir, value))
		}
		server.Do("CONFIG", "SET", "tls-auth-clients", "no")
		_, err = server.Try("CONFIG", "SET", "tls-port", strconv.Itoa(port))
		return err
	})
	address := fmt.Sprintf("rediss://127.0.0.1:%d", port)
	b := parse(t, "tls", "5/h")
	s := openStore(t, address, &Options{TLS: &tls.Config{RootCAs: roots}})
	for range 3 {
		if _, err := takeOne(t.Context(), s, b, "alice"); err != nil {
			t.Fatal(err)
		}
	}
	stranger := openStore(t, address, nil)
	_, err := takeOne(t.Context(), stranger, b, "alice")
	wantError(t, "a certificate of nobody", err, Connection)
	if err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of nobody: %v", err)
	}
	plainly := openStore(t, strings.Replace(address, "rediss", "redis", 1), nil)
	if _, err := takeOne(t.Context(), plainly, b, "alice"); err == nil {
		t.Error("without TLS a port for TLS is no error")
	}
}

// writeCertificate writes cert.pem and key.pem for 127.0.0.1.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redis"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(c)
	return pool
}

// A log of a thousand entries takes a sixth of what a sorted set of them would.
func TestLogIsSmall(t *testing.T) {
	server := start(t)
	v := newVirtual(t, openStore(t, server.URL(), nil))
	b := parse(t, "log", "1000/m sliding_log")
	for i := range int64(1000) {
		if err := v.TakeAt(batchOf(one(b, "alice")), epoch+i*1007); err != nil {
			t.Fatal(err)
		}
		server.Do("ZADD", "set", strconv.FormatInt(epoch+i*1007, 10), fmt.Sprintf("%d-%d-1", epoch+i*1007, i))
	}
	ours, _ := server.Do("MEMORY", "USAGE", v.key(b.StateID(), &drossel.Check{Budget: b, Key: "alice"}), "SAMPLES", "0").(int64)
	set, _ := server.Do("MEMORY", "USAGE", "set", "SAMPLES", "0").(int64)
	if ours == 0 || ours*6 > set {
		t.Errorf("a log of 1000 entries takes %d bytes, a sorted set %d", ours, set)
	}
	t.Logf("a log of 1000 entries takes %d bytes, a sorted set %d", ours, set)
	server.Do("DEL", "set")
}

// A caller whose clock is an hour off gets the decision of Redis' window, at any time of
// the day, or a clear error.
func TestSkewOfAnHour(t *testing.T) {
	server := start(t)
	v := newVirtual(t, openStore(t, server.URL(), nil))
	const hour = int64(3_600_000_000)
	for i, limit := range []string{"2/week calendar", "2/day calendar", "2/day calendar in Europe/Berlin", "2/month calendar"} {
		b := parse(t, fmt.Sprint("hour-off-", i), limit)
		for h := range int64(26) {
			for _, off := range []int64{-hour, 0, hour} {
				at := epoch/hour*hour + h*hour + 1
				batch := batchOf(one(b, fmt.Sprint("client-", h, off)))
				for n := int64(1); n <= 3; n++ {
					q := v.question(batch, &moment{at + off})
					q.at = (&moment{at}).text()
					if err := v.ask(t.Context(), q, batch, &moment{at}); err != nil {
						wantError(t, limit, err, Skew)
						break
					}
					if c := &batch.Checks[0]; batch.Allowed != (n <= 2) || c.Remaining != max(0, 2-n) {
						t.Errorf("%s, %d h off: the %d. request is allowed: %v, %d left", limit, off/hour, n, batch.Allowed, c.Remaining)
					}
				}
			}
		}
	}
}
