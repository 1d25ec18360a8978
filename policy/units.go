package policy

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drossel-io/drossel"
)

// duration reads a duration in a range.
func (r *reader) duration(n *node, what string, in durationForm) (time.Duration, bool) {
	text, ok := r.text(n, what)
	if !ok {
		return 0, false
	}
	d, err := drossel.ParseDuration(text)
	switch {
	case err != nil:
		r.rateError(n, what, err)
		return 0, false
	case d < in.least || d > in.most:
		r.errorf(n, "", "%s must be %s to %s, not %s", what, writeDuration(in.least), writeDuration(in.most), clip(text))
		return 0, false
	}
	return d, true
}

// size reads a number of bytes, such as 256MiB, in a range.
func (r *reader) size(n *node, what string, in sizeForm) (int64, bool) {
	text, ok := r.text(n, what)
	if !ok {
		return 0, false
	}
	number := strings.TrimRight(text, "kKMGiB")
	units := []string{"B", "kB", "KB", "MB", "GB", "KiB", "MiB", "GiB"}
	factors := []int64{1, 1000, 1000, 1e6, 1e9, 1 << 10, 1 << 20, 1 << 30}
	unit := slices.Index(units, text[len(number):])
	v, err := strconv.ParseInt(number, 10, 64)
	switch {
	case unit < 0 || err != nil || v < 0 || v > math.MaxInt64/factors[unit]:
		r.errorf(n, "write such as 256MiB; units are B, kB, MB, GB, KiB, MiB, GiB", "%s: %s is not a size", what, quote(text))
		return 0, false
	case v*factors[unit] < in.least && in.most == math.MaxInt64:
		r.errorf(n, "", "%s must be at least %s, not %s", what, writeSize(in.least), clip(text))
		return 0, false
	case v*factors[unit] < in.least || v*factors[unit] > in.most:
		r.errorf(n, "", "%s must be %s to %s, not %s", what, writeSize(in.least), writeSize(in.most), clip(text))
		return 0, false
	}
	return v * factors[unit], true
}

// writeDuration writes a duration as the file has it, in the largest unit that holds
// it exactly.
func writeDuration(d time.Duration) string {
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if d >= unit.d && d%unit.d == 0 {
			return strconv.FormatInt(int64(d/unit.d), 10) + unit.name
		}
	}
	return strconv.FormatInt(d.Microseconds(), 10) + "us"
}

// writeSize writes a number of bytes as the file has it, in the largest unit that
// holds it exactly.
func writeSize(n int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if factor := int64(1) << (30 - 10*i); n >= factor && n%factor == 0 {
			return strconv.FormatInt(n/factor, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}
