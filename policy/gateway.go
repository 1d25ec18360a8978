package policy

import "net/url"

// Gateway is the file's gateway section; the zero Gateway if there is none.
type Gateway struct {
	Listen   string    // host:port, :port or unix:/path; ":8080" unless said
	TLS      []KeyPair // what clients are shown, by the name they ask for; none: no TLS
	H2C      bool      // HTTP/2 without TLS is spoken too, to clients that begin with it
	Upstream *url.URL  // http, https, h2c or h2, with a host; nil only if the section is absent
}

// A KeyPair is the files of a certificate, with those of who signed it behind it, and
// of its key, both PEM. A relative name starts in the folder of the policy file.
type KeyPair struct{ Cert, Key string }
