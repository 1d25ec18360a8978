package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel/redisstore"
)

// A mark says whether a finding about a Redis is good.
type mark string

// The marks.
const (
	markOK      mark = "ok"
	markWarning mark = "warning"
	markBad     mark = "bad"
)

// A finding is one thing that was looked at.
type finding struct {
	Check   string `json:"check"`
	Found   string `json:"found"`
	Verdict mark   `json:"verdict"`
	Change  string `json:"change,omitempty"` // what to do about it
}

// What is still good of a Redis.
const (
	mostClockOff  = 250 * time.Millisecond
	mostMemoryPct = 75
)

// judge looks at what a Redis says about itself, for decisions that have a deadline.
func judge(f redisstore.Facts, deadline time.Duration) []finding {
	return []finding{judgeRoundTrip(f.RoundTrip, deadline), judgeClock(f), judgeVersion(f), judgeRole(f), judgeEviction(f), judgeMemory(f)}
}

func judgeRoundTrip(took, deadline time.Duration) finding {
	x := finding{Check: "round trip", Found: milliseconds(took) + " of a deadline of " + milliseconds(deadline), Verdict: markOK}
	switch {
	case took >= deadline:
		x.Verdict, x.Change = markBad, "Most decisions would come too late: put Redis nearer, or raise deadline in the store section."
	case took > deadline/4:
		x.Verdict, x.Change = markWarning, "Under load many decisions would come too late: put Redis nearer, or raise deadline in the store section."
	}
	return x
}

func judgeClock(f redisstore.Facts) finding {
	x := finding{Check: "clock", Found: milliseconds(f.Clock.Abs()) + " ahead of this machine's", Verdict: markOK}
	if f.Clock < 0 {
		x.Found = milliseconds(f.Clock.Abs()) + " behind this machine's"
	}
	if f.Clock.Abs()-f.RoundTrip/2 > mostClockOff { // more than it may be off by how it was measured
		x.Verdict = markWarning
		x.Change = "Times in answers are by Redis' clock, and after a failover the difference is given as credit or taken: let both machines use NTP."
	}
	return x
}

func judgeVersion(f redisstore.Facts) finding {
	x := finding{Check: "version", Found: serverName(f), Verdict: markOK}
	switch {
	case f.Version == "":
		x.Found, x.Verdict, x.Change = "unknown", markWarning, "Allow INFO to the user, so that version, memory and eviction can be looked at."
	case f.Server == "redis" && older(f.Version, 6, 2), f.Server == "valkey" && older(f.Version, 7, 2):
		x.Verdict, x.Change = markBad, "Use Redis 6.2, Valkey 7.2 or newer."
	case f.Mode == "cluster":
		x.Found, x.Verdict, x.Change = x.Found+", a cluster", markBad, "A Redis Cluster is not supported yet: use a single Redis, or Sentinel."
	}
	return x
}

// older reports whether a version is older than major.minor; what is no version is not.
func older(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, err := strconv.Atoi(parts[0])
	if err != nil {
		return false
	}
	b, err := strconv.Atoi(parts[1])
	return err == nil && (a < major || a == major && b < minor)
}

func judgeRole(f redisstore.Facts) finding {
	x := finding{Check: "role", Found: f.Role, Verdict: markOK}
	switch f.Role {
	case "":
		x.Found = "unknown"
	case "slave":
		x.Found, x.Verdict, x.Change = "replica", markBad, "A replica refuses every decision: name the primary, or the sentinels with redis+sentinel://."
	case "master":
		x.Found = "primary"
	}
	return x
}

func judgeEviction(f redisstore.Facts) finding {
	x := finding{Check: "eviction", Found: "maxmemory-policy " + f.Eviction, Verdict: markOK}
	switch f.Eviction {
	case "":
		x.Found = "unknown"
	case "noeviction":
	default:
		x.Verdict = markWarning
		x.Change = "Redis may forget spent budgets, and clients can make it: set maxmemory-policy noeviction (docs/redis.md)."
	}
	return x
}

func judgeMemory(f redisstore.Facts) finding {
	x := finding{Check: "memory", Found: bytesText(f.Memory) + " in use, no bound", Verdict: markOK}
	switch {
	case f.Memory == 0:
		x.Found = "unknown"
	case f.MaxMemory > 0:
		x.Found = bytesText(f.Memory) + " of " + bytesText(f.MaxMemory)
		if f.Memory > f.MaxMemory/100*mostMemoryPct {
			x.Verdict, x.Change = markWarning, "When Redis is full it refuses decisions: raise maxmemory."
		}
	}
	return x
}

// serverName is what a Redis is, with its version.
func serverName(f redisstore.Facts) string {
	if f.Version == "" {
		return "redis"
	}
	return f.Server + " " + f.Version
}

// milliseconds writes a duration of that order.
func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	if ms >= 10 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return strconv.FormatFloat(float64(int64(ms*100+0.5))/100, 'f', -1, 64) + " ms"
}

// bytesText writes a number of bytes for people.
func bytesText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%d KiB", (n+1023)/1024)
	}
}
