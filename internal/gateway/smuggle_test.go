package gateway_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/drossel-io/drossel/internal/gateway"
)

// A request within a request: what would be smuggled if the gateway and its upstream
// disagreed about where the first one ends.
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\nSmuggled: 1\r\n\r\n"

// smuggle sends bytes and returns the statuses that come back until the gateway ends the
// connection.
func smuggle(s *setup, text string) []string {
	w := s.connect()
	defer w.Close()
	_ = w.SetReadDeadline(soon())
	w.send(text)
	return statuses(w.rest())
}

// Whatever is wrong with the framing of a request, it is refused and ends its connection.
func TestSmuggling(t *testing.T) {
	s, up := scripted(t, gateway.Options{}, ok)
	post := func(fields, body string) string {
		return "POST /x HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n" + body + smuggled
	}
	chunks := func(body string) string { return post("Transfer-Encoding: chunked\r\n", body) }
	const end = "0\r\n\r\n"
	var names []string
	for name, text := range map[string]string{
		"CL.TE":                  post("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", end+"G"),
		"TE.CL":                  post("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "1\r\nG\r\n"+end),
		"TE.TE, two":             post("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", end),
		"TE.TE, the other first": post("Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", end),
		"TE in a list":           post("Transfer-Encoding: x, chunked\r\n", end),
		"TE not last":            post("Transfer-Encoding: chunked, identity\r\n", end),
		"TE twice":               post("Transfer-Encoding: chunked, chunked\r\n", end),
		"TE unknown":             post("Transfer-Encoding: xchunked\r\n", end),
		"TE identity":            post("Transfer-Encoding: identity\r\nContent-Length: 0\r\n", ""),
		"TE quoted":              post("Transfer-Encoding: \"chunked\"\r\n", end),
		"TE with a parameter":    post("Transfer-Encoding: chunked;q=1\r\n", end),
		"TE with VT":             post("Transfer-Encoding: chunked\x0b\r\n", end),
		"TE with NUL":            post("Transfer-Encoding: chunked\x00\r\n", end),
		"TE with CR":             post("Transfer-Encoding: \rchunked\r\n", end),
		"TE empty":               post("Transfer-Encoding:\r\nContent-Length: 0\r\n", ""),
		"TE, space before colon": post("Transfer-Encoding : chunked\r\nContent-Length: 0\r\n", ""),
		"TE, tab before colon":   post("Transfer-Encoding\t: chunked\r\nContent-Length: 0\r\n", ""),
		"TE, bare LF before":     post("X: y\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n", ""),
		"TE folded":              post("Transfer-Encoding:\r\n chunked\r\nContent-Length: 0\r\n", ""),
		"CL twice":               post("Content-Length: 0\r\nContent-Length: 44\r\n", ""),
		"CL in a list":           post("Content-Length: 0, 44\r\n", ""),
		"CL with a plus":         post("Content-Length: +0\r\n", ""),
		"CL with a minus":        post("Content-Length: -1\r\n", ""),
		"CL with a space":        post("Content-Length: 4 4\r\n", ""),
		"CL in hexadecimal":      post("Content-Length: 0x0\r\n", ""),
		"CL with VT":             post("Content-Length: 0\x0b\r\n", ""),
		"CL with a fraction":     post("Content-Length: 0.0\r\n", ""),
		"CL too large":           post("Content-Length: 99999999999999999999\r\n", ""),
		"CL empty":               post("Content-Length:\r\n", ""),
		"CL, space before colon": post("Content-Length : 0\r\n", ""),
		"CL folded":              post("Content-Length: 0\r\n 4\r\n", ""),
		"chunk with 0x":          chunks("0x0\r\n\r\n"),
		"chunk with a plus":      chunks("+0\r\n\r\n"),
		"chunk with a minus":     chunks("-1\r\n\r\n"),
		"chunk too large":        chunks("fffffffffffffffff\r\n"),
		"chunk without size":     chunks("\r\n\r\n"),
		"chunk longer than said": chunks("1\r\nGG\r\n" + end),
		"chunk with bare LF":     chunks("1;\nG\n0\n\n"),
		"chunk ext with bare LF": chunks("1;x\nG\r\n" + end),
		"chunk ext without end":  chunks("1;" + strings.Repeat("x", 64<<10)),
		"trailer without colon":  chunks("0\r\nX\r\n\r\n"),
		"trailer with CR":        chunks("0\r\nX: a\rb\r\n\r\n"),
		"NUL in a value":         post("X: a\x00b\r\nContent-Length: 0\r\n", ""),
		"NUL in a name":          post("X\x00: a\r\nContent-Length: 0\r\n", ""),
		"CR in a value":          post("X: a\rSmuggled: 1\r\nContent-Length: 0\r\n", ""),
		"CR in a name":           post("X\r: a\r\nContent-Length: 0\r\n", ""),
		"space in a name":        post("X Y: a\r\nContent-Length: 0\r\n", ""),
		"no name":                post(": a\r\nContent-Length: 0\r\n", ""),
		"no colon":               post("X\r\nContent-Length: 0\r\n", ""),
		"Host twice":             "GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + smuggled,
		"no Host":                "GET /x HTTP/1.1\r\n\r\n" + smuggled,
		"Host with a space":      "GET /x HTTP/1.1\r\nHost: a b\r\n\r\n" + smuggled,
		"Host with a path":       "GET /x HTTP/1.1\r\nHost: a/b\r\n\r\n" + smuggled,
		"Host, space before":     "GET /x HTTP/1.1\r\nHost : a\r\n\r\n" + smuggled,
		"first line folded":      "GET /x HTTP/1.1\r\n Host: a\r\n\r\n" + smuggled,
		"HTTP/0.9":               "GET /x\r\n" + smuggled,
		"HTTP/1.2":               "GET /x HTTP/1.10\r\nHost: a\r\n\r\n" + smuggled,
		"HTTP/2 in text":         "GET /x HTTP/2.0\r\nHost: a\r\n\r\n" + smuggled,
		"HTTP in lower case":     "GET /x http/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"two blanks":             "GET  /x HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"tabs":                   "GET\t/x\tHTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"target with a blank":    "GET /x HTTP/1.1 HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"target with NUL":        "GET /x\x00 HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"target with CR":         "GET /x\rGET HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"target without slash":   "GET x HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"no method":              " /x HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"no token":               "G@T /x HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
		"TRACE with a body":      "TRACE /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + smuggled,
		"1 MiB of head":          "GET /x HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: "+strings.Repeat("p", 1021)+"\r\n", 1<<10) + "\r\n" + smuggled,
		"1 MiB of target":        "GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\nHost: a\r\n\r\n" + smuggled,
	} {
		mark := fmt.Sprint("/probe", len(names))
		names = append(names, name)
		codes := smuggle(s, strings.Replace(text, "/x", mark, 1))
		if len(codes) > 1 || len(codes) == 1 && codes[0][0] != '4' && codes[0][0] != '5' || len(codes) == 1 && codes[0] == "502" {
			t.Errorf("%s: answered %v", name, codes)
		}
	}
	s.end()
	for _, target := range up.asked() {
		var n int
		if _, err := fmt.Sscanf(target, "POST /probe%d", &n); err != nil {
			t.Errorf("the upstream got %s", target)
			continue
		}
		// A head that is good is passed on before its body turns out to be bad.
		if !strings.HasPrefix(names[n], "chunk") && !strings.HasPrefix(names[n], "trailer") {
			t.Errorf("%s: the upstream got it", names[n])
		}
	}
	if seen := up.text(); strings.Contains(seen, "Smuggled") {
		t.Errorf("the upstream saw %q", seen)
	}
}

// What is odd but clear passes as clear as it can be written.
func TestOddRequests(t *testing.T) {
	var saw cell[string]
	s, _ := scripted(t, gateway.Options{Limiter: parsePolicy(t, gatewayPolicy("preserve_host: true"), nil)}, func(c *call) {
		text, whole := c.body()
		saw.set(fmt.Sprintf("%s %s host=%s len=%d te=%v x=%q body=%q trailer=%v", c.request.Method, c.request.RequestURI, c.request.Host,
			c.request.ContentLength, c.request.TransferEncoding, c.request.Header["X"], text, c.request.Trailer))
		if whole {
			c.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			c.keep = true
		}
	})
	const head = "POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
	for name, tt := range map[string][2]string{
		"bare line ends":    {"GET /x HTTP/1.1\nHost: a\nConnection: close\nX: y\n\n", `GET /x host=a len=0 te=[] x=["y"] body="" trailer=map[]`},
		"folded":            {"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: y\r\n  z\r\n\r\n", `GET /x host=a len=0 te=[] x=["y z"] body="" trailer=map[]`},
		"blank lines first": {"\r\n\r\nGET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "400"},
		"absolute":          {"GET http://b/x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", `GET /x host=b len=0 te=[] x=[] body="" trailer=map[]`},
		"same length twice": {head + "Content-Length: 2\r\nContent-Length: 2\r\n\r\nok", `POST /x host=a len=2 te=[] x=[] body="ok" trailer=map[]`},
		"length with zeros": {head + "Content-Length: 002\r\n\r\nok", `POST /x host=a len=2 te=[] x=[] body="ok" trailer=map[]`},
		"chunk extensions":  {head + "Transfer-Encoding: Chunked\r\n\r\n2;a=b\r\nok\r\n0;c\r\n\r\n", `POST /x host=a len=-1 te=[chunked] x=[] body="ok" trailer=map[]`},
		"trailer":           {head + "Transfer-Encoding: chunked\r\nTrailer: X\r\n\r\n2\r\nok\r\n0\r\nX: y\r\nY: z\r\n\r\n", `POST /x host=a len=-1 te=[chunked] x=[] body="ok" trailer=map[X:[y]]`},
		"forbidden trailer": {head + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n2\r\nok\r\n0\r\nContent-Length: 1\r\n\r\n", "400"},
		"length is hop by hop": {
			"POST /x HTTP/1.1\r\nHost: a\r\nConnection: close, Content-Length\r\nContent-Length: 2\r\n\r\nok", `POST /x host=a len=2 te=[] x=[] body="ok" trailer=map[]`,
		},
		"chunked is hop by hop": {
			"POST /x HTTP/1.1\r\nHost: a\r\nConnection: close, Transfer-Encoding, Host, X\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
			`POST /x host=a len=-1 te=[chunked] x=[] body="ok" trailer=map[]`,
		},
		"GET with a body": {"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", `GET /x host=a len=2 te=[] x=[] body="ok" trailer=map[]`},
	} {
		saw.set("")
		codes := smuggle(s, tt[0])
		got := saw.get()
		if want := cmp.Or(map[bool]string{true: tt[1]}[len(tt[1]) == 3], "200"); len(codes) != 1 || codes[0] != want || want == "200" && got != tt[1] {
			t.Errorf("%s: answered %v, the upstream got\n%s, want\n%s", name, codes, got, tt[1])
		}
	}
}

// Fields that are of one connection go no further, in either direction.
func TestHopByHopFields(t *testing.T) {
	var head cell[http.Header]
	s, _ := scripted(t, gateway.Options{}, func(c *call) {
		head.set(c.request.Header)
		c.write("HTTP/1.1 200 OK\r\nConnection: X-Res, Keep-Alive\r\nKeep-Alive: timeout=5\r\nProxy-Connection: x\r\nProxy-Authenticate: Basic\r\n" +
			"X-Res: 1\r\nUpgrade: h2c\r\nX-End: 2\r\nContent-Length: 2\r\n\r\nok")
		c.keep = true
	})
	w := s.connect()
	w.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Req, Keep-Alive, TE\r\nKeep-Alive: 1\r\nProxy-Connection: x\r\nProxy-Authorization: y\r\nX-Req: 1\r\nTE: trailers, deflate\r\nX-End: 2\r\n\r\n")
	res, _, _ := w.read("GET")
	seen := head.get()
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Proxy-Authenticate", "X-Req", "X-Res", "Upgrade"} {
		if seen.Get(name) != "" || res.Header.Get(name) != "" {
			t.Errorf("%s passes: request %q, response %q", name, seen.Get(name), res.Header.Get(name))
		}
	}
	if seen.Get("X-End") != "2" || res.Header.Get("X-End") != "2" || seen.Get("Te") != "trailers" {
		t.Errorf("the upstream got %v, the client %v", seen, res.Header)
	}
}

// A connection that becomes one of HTTP/2 or TLS would carry requests that nobody
// decides, so it does not become one.
func TestUpgradesToHTTP(t *testing.T) {
	var head cell[http.Header]
	s, _ := scripted(t, gateway.Options{}, func(c *call) {
		head.set(c.request.Header)
		if up := c.request.Header.Get("Upgrade"); up != "" {
			c.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + up + "\r\n\r\n")
			return
		}
		c.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	for upgrade, want := range map[string]int{
		"h2c": 200, "H2C": 200, "h2": 200, "HTTP/2.0": 200, "TLS/1.2": 200, "websocket, h2c": 200, "h2c, websocket": 200, "websocket": 101, "echo": 101,
	} {
		w := s.connect()
		w.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: " + upgrade + "\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n")
		res, body, _ := w.read("GET")
		seen := head.get()
		if res.StatusCode != want || want == 200 && (body != "ok" || seen.Get("Upgrade") != "") || seen.Get("Http2-Settings") != "" {
			t.Errorf("%s: status %d, body %q, the upstream saw %v", upgrade, res.StatusCode, body, seen)
		}
		_ = w.Close()
	}
}

// Fields of HTTP/2 can hold what the text of HTTP/1.1 cannot: none of it reaches the
// upstream as text.
func TestSmugglingThroughHTTP2(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := newScript(t, l, ok)
	g, err := gateway.New(gateway.Options{Limiter: parsePolicy(t, openPolicy, nil), Upstream: &url.URL{Scheme: "http", Host: up.address}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(g)
	server.Config.Protocols = h2c()
	server.Start()
	defer server.Close()
	usual := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/x"}}
	with := func(fields ...[2]string) [][2]string {
		all := slices.Clone(usual)
		for _, f := range fields {
			if i := slices.IndexFunc(all, func(o [2]string) bool { return o[0] == f[0] && f[0][0] == ':' }); i >= 0 {
				all[i] = f
				continue
			}
			all = append(all, f)
		}
		return all
	}
	const inject = "x\r\nSmuggled: 1"
	for name, tt := range map[string]struct {
		fields [][2]string
		body   string
		passes bool
	}{
		"usual":                 {usual, "body", true},
		"length":                {with([2]string{"content-length", "4"}), "body", true},
		"length too small":      {with([2]string{"content-length", "2"}), "body", false},
		"length too large":      {with([2]string{"content-length", "9"}), "body", false},
		"two lengths":           {with([2]string{"content-length", "4"}, [2]string{"content-length", "5"}), "body", false},
		"length with a plus":    {with([2]string{"content-length", "+4"}), "body", false},
		"transfer-encoding":     {with([2]string{"transfer-encoding", "chunked"}), "0\r\n\r\n" + smuggled, false},
		"connection":            {with([2]string{"connection", "close"}), "", false},
		"keep-alive":            {with([2]string{"keep-alive", "1"}), "", false},
		"proxy-connection":      {with([2]string{"proxy-connection", "x"}), "", false},
		"upgrade":               {with([2]string{"upgrade", "h2c"}), "", false},
		"te":                    {with([2]string{"te", "gzip"}), "", false},
		"upper case":            {with([2]string{"X-Upper", "1"}), "", false},
		"CRLF in a value":       {with([2]string{"x", inject}), "", false},
		"LF in a value":         {with([2]string{"x", "x\nSmuggled: 1"}), "", false},
		"CR in a value":         {with([2]string{"x", "x\rSmuggled: 1"}), "", false},
		"NUL in a value":        {with([2]string{"x", "x\x00"}), "", false},
		"CRLF in a name":        {with([2]string{"x: y\r\nsmuggled", "1"}), "", false},
		"colon in a name":       {with([2]string{"x:smuggled", "1"}), "", false},
		"space in a name":       {with([2]string{"x smuggled", "1"}), "", false},
		"no name":               {with([2]string{"", "1"}), "", false},
		"CRLF in the path":      {with([2]string{":path", "/x HTTP/1.1\r\nSmuggled: 1\r\n\r\n"}), "", false},
		"blank in the path":     {with([2]string{":path", "/x HTTP/1.1"}), "", false},
		"NUL in the path":       {with([2]string{":path", "/\x00"}), "", false},
		"path without slash":    {with([2]string{":path", "smuggled"}), "", false},
		"empty path":            {with([2]string{":path", ""}), "", false},
		"path of a URL":         {with([2]string{":path", "http://b/smuggled"}), "", false},
		"CRLF in the method":    {with([2]string{":method", "GET /smuggled HTTP/1.1\r\nSmuggled: 1\r\n\r\nGET"}), "", false},
		"blank in the method":   {with([2]string{":method", "GET /smuggled"}), "", false},
		"CRLF in the authority": {with([2]string{":authority", "a\r\nSmuggled: 1"}), "", false},
		"path in the authority": {with([2]string{":authority", "a/smuggled"}), "", false},
		"CRLF in the scheme":    {with([2]string{":scheme", inject}), "", false},
		"unknown pseudo-field":  {with([2]string{":smuggled", "1"}), "", false},
		"pseudo-field twice":    {append(slices.Clone(usual), [2]string{":path", "/smuggled"}), "", false},
		"pseudo-field too late": {append(append([][2]string{{"x", "y"}}, usual...), [2]string{"z", "z"}), "", false},
		"CONNECT":               {[][2]string{{":method", "CONNECT"}, {":authority", "a:443"}}, "", false},
	} {
		up.asked()
		status := sendHTTP2(t, server.Listener.Addr().String(), tt.fields, tt.body)
		reached := up.asked()
		if passed := status == "200"; passed != tt.passes || status != "" && status[0] != '2' && status[0] != '4' && status[0] != '5' {
			t.Errorf("%s: status %q, want that it passes: %v", name, status, tt.passes)
		}
		if seen := up.text(); strings.Contains(seen, "\nSmuggled:") || strings.Contains(seen, "\rSmuggled:") || slices.ContainsFunc(reached, func(r string) bool { return strings.Contains(r, "smuggled") }) {
			t.Errorf("%s: the upstream got %v: %q", name, reached, seen)
		}
	}
}

// sendHTTP2 sends one request over a connection of its own and returns the status, or
// nothing if it is refused otherwise.
func sendHTTP2(t *testing.T, address string, fields [][2]string, body string) (status string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(soon())
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	framer.AllowIllegalWrites = true
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = framer.WriteSettings()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range fields {
		_ = enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: body == ""})
	if body != "" {
		_ = framer.WriteData(1, true, []byte(body))
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return status
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = framer.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			if status = f.PseudoValue("status"); f.StreamEnded() {
				return status
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return status
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return status
		}
	}
}
