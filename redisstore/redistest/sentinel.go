//go:build unix

package redistest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Sentinels are three sentinels that watch a primary with one replica.
type Sentinels struct {
	Primary *Server // the one that was started as the primary
	Replica *Server
	Guards  []*Server // the sentinels

	t testing.TB
}

// MasterName is what the sentinels call their primary.
const MasterName = "drossel"

// StartSentinel starts a primary, a replica in sync with it and three sentinels
// that know each other. They take half a second of silence for death. config is
// further lines of the configuration of primary and replica.
func StartSentinel(t testing.TB, config ...string) *Sentinels {
	t.Helper()
	s := &Sentinels{Primary: Start(t, config...), t: t}
	follow := fmt.Sprintf("replicaof 127.0.0.1 %d", s.Primary.Port)
	s.Replica = Start(t, append([]string{follow, "repl-diskless-sync-delay 0"}, config...)...)
	for range 3 {
		s.Guards = append(s.Guards, start(t, "redis-sentinel", func(*Server) []string {
			return []string{
				fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", MasterName, s.Primary.Port),
				"sentinel down-after-milliseconds " + MasterName + " 500",
				"sentinel failover-timeout " + MasterName + " 3000",
			}
		}))
	}
	s.await("the replica follows", func() error {
		return contains(s.Replica, "master_link_status:up", "INFO", "replication")
	})
	for _, g := range s.Guards {
		s.await("the sentinels know all", func() error {
			return contains(g, "slaves=1,sentinels=3", "INFO", "sentinel")
		})
	}
	return s
}

// URL is the address of the primary by way of the sentinels.
func (s *Sentinels) URL() string {
	var hosts []string
	for _, g := range s.Guards {
		hosts = append(hosts, g.Addr)
	}
	return "redis+sentinel://" + strings.Join(hosts, ",") + "/" + MasterName
}

// AwaitFailover waits until the replica is the primary and two sentinels say so.
func (s *Sentinels) AwaitFailover() {
	s.t.Helper()
	s.await("the replica is promoted", func() error { return contains(s.Replica, "role:master", "INFO", "replication") })
	s.await("the sentinels have heard", func() error {
		agree := 0
		for _, g := range s.Guards {
			if contains(g, "address="+s.Replica.Addr, "INFO", "sentinel") == nil {
				agree++
			}
		}
		if agree < 2 {
			return errors.New("fewer than two sentinels name the new primary")
		}
		return nil
	})
}

func (s *Sentinels) await(what string, try func() error) {
	s.t.Helper()
	if err := await(try); err != nil {
		s.t.Fatalf("waiting until %s: %v", what, err)
	}
}

// contains returns nil if the server's answer contains part.
func contains(s *Server, part string, args ...string) error {
	v, err := s.Try(args...)
	if err != nil {
		return err
	}
	text, _ := v.(string)
	if !strings.Contains(text, part) {
		return fmt.Errorf("no %q in %.200q", part, text)
	}
	return nil
}
