package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gaissmai/bart"
)

// CIDRs is a set of address prefixes, and whether peers on unix sockets belong
// to it. The zero value is empty. It is immutable and safe for concurrent use.
type CIDRs struct {
	table *bart.Lite
	items []string
	unix  bool
}

// ParseCIDRs makes a set of prefixes (10.0.0.0/8, 2001:db8::/32), addresses
// (taken as /32 or /128) and the word unix, which stands for all peers on unix
// sockets. IPv4-mapped prefixes become IPv4. An IPv6 prefix never contains an
// IPv4 address, so "everyone" is 0.0.0.0/0 and ::/0. Every bad item is reported,
// as an *[Error], joined.
func ParseCIDRs(items ...string) (CIDRs, error) {
	var c CIDRs
	var errs []error
	for _, item := range items {
		item = strings.TrimSpace(item)
		if item == "unix" {
			c.unix = true
			c.items = append(c.items, item)
			continue
		}
		prefix, err := parseCIDR(item)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if c.table == nil {
			c.table = new(bart.Lite)
		}
		c.table.Insert(prefix)
		c.items = append(c.items, prefix.String())
	}
	if len(errs) > 0 {
		return CIDRs{}, errors.Join(errs...)
	}
	return c, nil
}

// MustCIDRs is ParseCIDRs for lists written in code. It panics on a bad item.
func MustCIDRs(items ...string) CIDRs {
	c, err := ParseCIDRs(items...)
	if err != nil {
		panic(err)
	}
	return c
}

// Contains reports whether addr is in the set. A zone is ignored, an
// IPv4-mapped address is taken as IPv4. The zero Addr is in no set.
func (c CIDRs) Contains(addr netip.Addr) bool {
	return c.table != nil && addr.IsValid() && c.table.Contains(addr.Unmap().WithZone(""))
}

// Unix reports whether peers on unix sockets are in the set.
func (c CIDRs) Unix() bool { return c.unix }

// Empty reports whether nothing is in the set.
func (c CIDRs) Empty() bool { return len(c.items) == 0 }

// String returns the items in the order given, separated by blanks.
func (c CIDRs) String() string { return strings.Join(c.items, " ") }

func parseCIDR(item string) (netip.Prefix, error) {
	fail := func(problem, hint string) (netip.Prefix, error) {
		return netip.Prefix{}, &Error{Field: "TrustedProxies", Problem: problem, Hint: hint}
	}
	text, bits, isPrefix := strings.Cut(item, "/")
	if strings.Contains(text, "%") {
		return fail(fmt.Sprintf("%q has a zone", item), "leave out % and what follows it")
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return fail(fmt.Sprintf("%q is not an address or a prefix", item),
			"write 10.0.0.0/8, 2001:db8::/32, an address, or unix; names are not looked up")
	}
	n := addr.BitLen()
	if isPrefix {
		n, err = strconv.Atoi(bits)
		if err != nil || n < 0 || n > addr.BitLen() || bits != strconv.Itoa(n) {
			return fail(fmt.Sprintf("%q has no valid prefix length", item),
				fmt.Sprintf("write %s/%d for this one address, or a length from 0 to %d", addr, addr.BitLen(), addr.BitLen()))
		}
	}
	prefix := netip.PrefixFrom(addr, n)
	if masked := prefix.Masked(); masked != prefix {
		return fail(fmt.Sprintf("%q has bits set behind its prefix", item),
			fmt.Sprintf("write %s for the network, or %s for the one address", masked, addr))
	}
	if addr.Is4In6() {
		// Only the whole mapped range and what is inside it get here: a shorter
		// prefix would have bits set behind it.
		return netip.PrefixFrom(addr.Unmap(), n-96), nil
	}
	return prefix, nil
}
