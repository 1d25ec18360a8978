package simulate_test

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"
)

// This file is a second opinion on what "60/m burst 20 by ip" does to an access log. It shares no code
// with the project and imports none of it: it reads lines with a regular expression, and counts by
// looking at every admitted request of the client again and again.

// A modelClient is what the model says about one client.
type modelClient struct {
	allowed, denied int
	firstDenied     time.Time
}

// modelLine is the combined format, its last two fields optional. The quoted fields may hold escaped
// quotes.
var modelLine = regexp.MustCompile(`^(\S+) \S+ .*?\[([^\]]+)\] "([A-Za-z]+) (\S.*?)(?: (HTTP/\S+))?" (\d{3}|-) (\d+|-)` +
	`(?: "(?:[^"\\]|\\.)*"(?: "(?:[^"\\]|\\.)*")?)?$`)

// slowModel returns the clients of a log and how many of its lines it cannot read.
func slowModel(log string) (clients map[string]modelClient, unreadable int) {
	type visit struct {
		second int64
		client string
	}
	var visits []visit
	for line := range strings.SplitSeq(strings.TrimSuffix(log, "\n"), "\n") {
		m := modelLine.FindStringSubmatch(line)
		if m == nil {
			unreadable++
			continue
		}
		at, err := time.Parse("02/Jan/2006:15:04:05 -0700", m[2])
		if err != nil {
			unreadable++
			continue
		}
		visits = append(visits, visit{at.Unix(), modelAddress(m[1])})
	}
	slices.SortStableFunc(visits, func(a, b visit) int { return cmp.Compare(a.second, b.second) })
	clients = map[string]modelClient{}
	admitted := map[string][]int64{}
	for _, v := range visits {
		c := clients[v.client]
		if modelFits(admitted[v.client], v.second) {
			admitted[v.client] = append(admitted[v.client], v.second)
			c.allowed++
		} else {
			c.denied++
			if c.firstDenied.IsZero() {
				c.firstDenied = time.Unix(v.second, 0).UTC()
			}
		}
		clients[v.client] = c
	}
	return clients, unreadable
}

// modelFits says whether one more request may come at a second: in no stretch of time that ends now,
// however long, may there be more requests than 20 and one for each second of it.
func modelFits(admitted []int64, now int64) bool {
	for i, start := range admitted {
		if int64(len(admitted)-i)+1 > 20+(now-start) {
			return false
		}
	}
	return true
}

// modelAddress counts an IPv6 client by its /64.
func modelAddress(text string) string {
	addr := netip.MustParseAddr(text)
	if addr.Is4() {
		return text
	}
	network, err := addr.Prefix(64)
	if err != nil {
		panic(err)
	}
	return network.String()
}
