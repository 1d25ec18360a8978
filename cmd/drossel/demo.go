package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/drossel-io/drossel/internal/gateway"
	"github.com/drossel-io/drossel/policy"
)

// demoPolicy is the policy that examples/ shows too.
//
//go:embed api.yaml
var demoPolicy string

func (p *program) demoCommand() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "see a policy at work, in a few seconds",
		Example: "  drossel demo\n  drossel demo --keep   # and try it with curl",
		Long: `Demo starts a small API, the gateway in front of it with the policy of examples/api.yaml, and a client
that asks too much. All of it happens, over TCP on this machine.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.demo(cmd.Context(), keep) },
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "leave it running until a signal")
	return cmd
}

// demo starts everything, runs the client, and takes everything down.
func (p *program) demo(ctx context.Context, keep bool) (err error) {
	serving, stop := context.WithCancel(ctx)
	var servers sync.WaitGroup
	defer servers.Wait()
	defer stop()
	api, err := localhost(ctx)
	if err != nil {
		return err
	}
	servers.Go(func() { serveDemoAPI(serving, api) })
	front, err := localhost(ctx)
	if err != nil {
		return err
	}
	gate, err := demoGateway(api.Addr().String())
	if err != nil {
		return err
	}
	servers.Go(func() { _ = gate.Serve(serving, front) }) // if it fails, so does the client
	d := &demonstration{program: p, gateway: front.Addr().String()}
	p.printf("The policy, examples/api.yaml:\n\n%s\n", indented(demoPolicy))
	p.printf("A small API listens on %s, the gateway in front of it on %s.\n\n", api.Addr(), front.Addr())
	if err := d.play(ctx); err != nil {
		return err
	}
	if !keep {
		p.printf("That was all. To try it yourself: drossel demo --keep\n")
		return nil
	}
	p.printf("It goes on until Ctrl-C. Try, more than ten times:\n\n  curl -i -X POST http://%s/api/orders\n", d.gateway)
	<-ctx.Done()
	return nil
}

// localhost listens on a free port of this machine.
func localhost(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", "127.0.0.1:0")
}

func demoGateway(upstream string) (*gateway.Gateway, error) {
	text := strings.Replace(demoPolicy, "http://127.0.0.1:3000", "http://"+upstream, 1)
	parsed, problems := policy.Parse("api.yaml", []byte(text))
	if err := problems.Err(); err != nil {
		return nil, err
	}
	limiter, err := policy.New(parsed, nil)
	if err != nil {
		return nil, err
	}
	return gateway.New(gateway.Options{Limiter: limiter})
}

// serveDemoAPI is an API that the limits are for.
func serveDemoAPI(ctx context.Context, l net.Listener) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body+"\n")
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /api/status", answer(http.StatusOK, `{"status":"fine"}`))
	mux.Handle("GET /api/search", answer(http.StatusOK, `{"found":["song thrush","mistle thrush"]}`))
	mux.Handle("POST /api/orders", answer(http.StatusCreated, `{"order":"taken"}`))
	mux.Handle("POST /api/auth/login", answer(http.StatusUnauthorized, `{"error":"wrong password"}`))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	_ = server.Serve(l) // it ends when the demo does
}

// A demonstration is the client.
type demonstration struct {
	*program

	gateway string
}

// play asks too much, waits as it is told to, and asks again; then it asks for something else.
func (d *demonstration) play(ctx context.Context) error {
	d.printf("POST /api/orders as fast as one client can. 10 may come at once, then 2 a second:\n\n ")
	passed := 0
	denial, err := d.until(ctx, "POST", "/api/orders", 429, 100, func(r *reply) {
		d.printf(" %d", r.status)
		if r.status != 429 {
			passed++
		}
	})
	if err != nil {
		return err
	}
	d.printf("\n\n%d passed. This is the whole answer to the next one:\n\n%s\n", passed, indented(denial.text))
	wait := denial.retryAfter
	d.printf("It says Retry-After: %d. So the client waits %s ...\n", wait, span(time.Duration(wait)*time.Second))
	if err := rest(ctx, time.Duration(wait)*time.Second); err != nil {
		return err
	}
	again, err := d.ask(ctx, "POST", "/api/orders")
	if err != nil {
		return err
	}
	d.printf("... and passes: %s\n\n", again.statusLine)
	if again.status == http.StatusTooManyRequests {
		return errors.New("the gateway denied a request after the wait that it had asked for")
	}
	return d.others(ctx)
}

// others shows that each limit has a bucket of its own.
func (d *demonstration) others(ctx context.Context) error {
	d.printf("Every limit has a bucket of its own:\n\n")
	t := newTable("", ">", "")
	for _, route := range []struct {
		method, path string
		most         int
	}{{"POST", "/api/auth/login", 100}, {"GET", "/api/search", 200}, {"GET", "/api/status", 500}} {
		n := 0
		last, err := d.until(ctx, route.method, route.path, 429, route.most, func(r *reply) {
			if r.status != 429 {
				n++
			}
		})
		if err != nil {
			return err
		}
		end := "and there is more"
		if last.status == 429 {
			end = fmt.Sprintf("then 429 with Retry-After: %d", last.retryAfter)
		}
		t.add(route.method+" "+route.path, number(n)+" passed", end)
	}
	t.print(d.stdout, "  ")
	d.printf("\n")
	return nil
}

// until asks again and again until the status comes, but at most most times, and returns the last
// reply.
func (d *demonstration) until(ctx context.Context, method, path string, status, most int, see func(*reply)) (*reply, error) {
	for n := 1; ; n++ {
		r, err := d.ask(ctx, method, path)
		if err != nil {
			return nil, err
		}
		see(r)
		if r.status == status || n == most {
			return r, nil
		}
	}
}

// A reply is an answer as it came over the wire.
type reply struct {
	text, statusLine   string
	status, retryAfter int
}

// ask sends one request on a connection of its own and reads the answer as it is.
func (d *demonstration) ask(ctx context.Context, method, path string) (*reply, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", d.gateway)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", method, path, d.gateway); err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(conn)
	if err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(raw))), nil)
	if err != nil {
		return nil, err
	}
	_ = res.Body.Close()
	r := &reply{text: strings.ReplaceAll(string(raw), "\r\n", "\n"), status: res.StatusCode}
	r.statusLine, _, _ = strings.Cut(r.text, "\n")
	r.retryAfter, _ = strconv.Atoi(res.Header.Get("Retry-After")) // absent is 0
	return r, nil
}

// rest waits, but not longer than ctx.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// indented moves a text to the right.
func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return b.String()
}
