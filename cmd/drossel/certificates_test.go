package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// writePair writes a certificate for a name and 127.0.0.1, and its key. It is one of an authority, or an
// authority itself.
func writePair(t *testing.T, certFile, keyFile, name string, authority *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: authority == nil, BasicConstraintsValid: true,
	}
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	write(t, certFile, string(certPEM))
	write(t, keyFile, string(keyPEM))
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// secretVersion writes a certificate and its key to a folder of its own below folder, as a secrets
// manager does.
func secretVersion(t *testing.T, folder, name string) {
	t.Helper()
	writePair(t, filepath.Join(folder, name, "tls.crt"), filepath.Join(folder, name, "tls.key"), name, nil)
}

// point lets a symbolic link lead to a version, in one step.
func point(t *testing.T, link, to string) {
	t.Helper()
	next := link + ".next"
	if err := errors.Join(os.Symlink(to, next), os.Rename(next, link)); err != nil {
		t.Fatal(err)
	}
}

// Certificates are replaced as Kubernetes does it: a link to a folder is swapped. A bad pair is refused.
func TestServeTLS(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer upstream.Close()
	folder := t.TempDir()
	for _, name := range []string{"one.example", "two.example", "three.example"} {
		secretVersion(t, folder, name)
	}
	if err := os.Rename(filepath.Join(folder, "two.example", "tls.crt"), filepath.Join(folder, "three.example", "tls.crt")); err != nil {
		t.Fatal(err)
	}
	point(t, filepath.Join(folder, "data"), "one.example")
	path := filepath.Join(folder, "policy.yaml")
	text := `
gateway:
  listen: "127.0.0.1:0"
  upstream: "` + upstream.URL + `"
  tls: {cert: data/tls.crt, key: data/tls.key}
routes: {/: {limits: [100/h by ip]}}
`
	write(t, path, text)
	s := serveFile(t, path)
	log := s.until(t, "^ready in ")
	at := regexp.MustCompile(`gateway +https://(127\.0\.0\.1:\d+) `).FindStringSubmatch(log)
	if at == nil || !regexp.MustCompile(`(?m)^tls +one\.example 127\.0\.0\.1   \S+/data/tls\.crt, until 20\d\d-\S+ \S+ UTC$`).MatchString(log) {
		t.Fatalf("the log is\n%s", log)
	}
	shown := func() string {
		conn, err := tls.Dial("tcp", at[1], &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // whom we talk to is the question
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := shown(); got != "one.example" {
		t.Errorf("%s is shown", got)
	}
	point(t, filepath.Join(folder, "data"), "three.example")
	s.until(t, "^certificates NOT reloaded, those before stay in force")
	if line := s.until(t, "."); !strings.Contains(line, "tls.crt") || !strings.Contains(line, "private key does not match") {
		t.Errorf("the reason is %q", line)
	}
	if got := shown(); got != "one.example" {
		t.Errorf("after a bad pair %s is shown", got)
	}
	secretVersion(t, folder, "two.example")
	point(t, filepath.Join(folder, "data"), "two.example")
	s.until(t, "^certificates reloaded  for new connections")
	if line := s.until(t, "."); !strings.Contains(line, "two.example") {
		t.Errorf("what is shown now: %q", line)
	}
	if got := shown(); got != "two.example" {
		t.Errorf("after a swap %s is shown", got)
	}

	// What the policy says about tls is followed, but not whether there is any.
	write(t, path, strings.ReplaceAll(text, "data/", "one.example/"))
	s.until(t, "gateway +tls: data/tls.crt with data/tls.key -> one.example/tls.crt with one.example/tls.key")
	if got := shown(); got != "one.example" {
		t.Errorf("after a new policy %s is shown", got)
	}
	write(t, path, strings.Replace(text, "tls: {", "# {", 1))
	s.until(t, "! gateway +tls: on -> off   needs a restart, until then as before")
	if got := shown(); got != "one.example" {
		t.Errorf("after a policy without tls %s is shown", got)
	}
	s.stop(errors.New("test"))
	s.until(t, "^stopped: ")
	if code := <-s.code; code != exitDone {
		t.Errorf("code %d", code)
	}
}

func TestServeTLSMissing(t *testing.T) {
	s := serve(t, "gateway: {listen: '127.0.0.1:0', upstream: 'http://127.0.0.1:1', tls: {cert: a.pem, key: a.key}}\nroutes: {/: {limits: [1/h by ip]}}\n")
	if line := s.until(t, "^drossel: "); !strings.Contains(line, filepath.Join(filepath.Dir(s.path), "a.pem")) || !strings.Contains(line, "no such file") {
		t.Errorf("the error is %q", line)
	}
	if code := <-s.code; code != exitFailed {
		t.Errorf("code %d", code)
	}
}
