package policy

import (
	"net/url"
	"time"
)

// Gateway is the file's gateway section; the zero Gateway if there is none.
type Gateway struct {
	Listen   string    // host:port, :port or unix:/path; ":8080" unless said
	TLS      []KeyPair // what clients are shown, by the name they ask for; none: no TLS
	H2C      bool      // HTTP/2 without TLS is spoken too, to clients that begin with it
	Upstream *url.URL  // http, https, h2c or h2, with a host; nil only if the section is absent

	ProxyProtocol  bool // each connection begins with its client's address, as a trusted proxy says
	PreserveHost   bool // the upstream gets the client's Host, and not its own
	CORS           *CORS
	MaxHeader      int64 // bytes of a request's head
	MaxBody        int64 // bytes of a request's body; 0 means any
	MaxConnections int   // of clients at once; 0 means any
	Timeouts       Timeouts
	Drain          time.Duration // how long requests may run on at the end
}

// A KeyPair is the files of a certificate, with those of who signed it behind it, and
// of its key, both PEM. A relative name starts in the folder of the policy file.
type KeyPair struct{ Cert, Key string }

// CORS says which scripts of other origins may read the gateway's own answers.
type CORS struct {
	Origins     []string // such as https://app.example; "*" alone means any
	Credentials bool     // cookies and the like may be sent with a request
}

// Timeouts are how long a gateway waits.
type Timeouts struct {
	Head         time.Duration // for the head of a client's request, and for its TLS
	Idle         time.Duration // for the next request on a connection
	Stall        time.Duration // for a body to move on
	Connect      time.Duration // for a connection to the upstream
	UpstreamHead time.Duration // for the head of the upstream's response
}

// DefaultGateway returns what a gateway section is that says nothing. It has no
// upstream, so it is none that Parse returns.
func DefaultGateway() Gateway {
	return Gateway{
		Listen:    ":8080",
		MaxHeader: 64 << 10,
		Timeouts: Timeouts{
			Head: 10 * time.Second, Idle: 2 * time.Minute, Stall: time.Minute, Connect: 5 * time.Second, UpstreamHead: time.Minute,
		},
		Drain: 30 * time.Second,
	}
}
