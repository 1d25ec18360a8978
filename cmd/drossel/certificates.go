package main

import (
	"log/slog"
	"strings"
	"time"

	"github.com/drossel-io/drossel/internal/gateway"
)

// reloadCertificates reads the files again. If nobody has asked, it keeps silent about what it knows
// already.
func (r *reloader) reloadCertificates(asked bool) {
	if r.gate == nil {
		return
	}
	changed, err := r.gate.ReloadCertificates()
	if err != nil {
		if failed := err.Error(); asked || failed != r.badPair {
			r.badPair = failed
			r.tell(slog.LevelError, "certificates NOT reloaded", "those before stay in force", []string{failed})
		}
		return
	}
	r.badPair = ""
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
