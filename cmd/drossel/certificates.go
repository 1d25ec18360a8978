package main

import (
	"log/slog"
	"strings"
	"time"

	"github.com/drossel-io/drossel/internal/gateway"
)

// A certificateWatch tells when files of the gateway's certificates change.
type certificateWatch struct {
	watchedFiles

	failed string // why they could not be read last; "" if they could
}

// watchCertificates watches the files of the certificates that are in force, and no others.
func (r *reloader) watchCertificates() {
	if r.gate == nil {
		return
	}
	w := &r.certificates
	others, err := w.watch(r.gate.CertificateFiles())
	switch {
	case err != nil:
		r.log.Warn("the certificates are not watched: send SIGHUP when they have changed", slog.String("error", err.Error()))
	case others:
		w.failed = ""
	}
}

// reloadCertificates reads the files again. If nobody has asked, it keeps silent about what it knows
// already.
func (r *reloader) reloadCertificates(asked bool) {
	if r.gate == nil {
		return
	}
	w := &r.certificates
	changed, err := r.gate.ReloadCertificates()
	if err != nil {
		if failed := err.Error(); asked || failed != w.failed {
			w.failed = failed
			r.tell(slog.LevelError, "certificates NOT reloaded", "those before stay in force", []string{failed})
		}
		return
	}
	w.failed = ""
	if !changed {
		return
	}
	var lines []string
	for _, c := range r.gate.Certificates() {
		lines = append(lines, certificate(c))
	}
	r.tell(slog.LevelInfo, "certificates reloaded", "for new connections", lines)
}

// certificate says what a certificate is for and how long it is good.
func certificate(c gateway.Certificate) string {
	text := strings.Join(c.Names, " ") + "   " + c.File + ", until " + c.Expires.UTC().Format(time.DateTime) + " UTC"
	if time.Now().After(c.Expires) {
		text += ": EXPIRED, clients refuse it"
	}
	return text
}
