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
		r.errorf(n, "", "%s must be %s to %s, not %s", what, DurationText(in.least), DurationText(in.most), clip(text))
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
		r.errorf(n, "", "%s must be at least %s, not %s", what, SizeText(in.least), clip(text))
		return 0, false
	case v*factors[unit] < in.least || v*factors[unit] > in.most:
		r.errorf(n, "", "%s must be %s to %s, not %s", what, SizeText(in.least), SizeText(in.most), clip(text))
		return 0, false
	}
	return v * factors[unit], true
}

// DurationText writes a duration as a policy has it, in the largest unit that holds it
// exactly, such as 90s. It is not negative and has whole microseconds.
func DurationText(d time.Duration) string {
	for _, unit := range []struct {
		name string
		is   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}} {
		if d >= unit.is && d%unit.is == 0 {
			return strconv.FormatInt(int64(d/unit.is), 10) + unit.name
		}
	}
	return strconv.FormatInt(d.Microseconds(), 10) + "us"
}

// SizeText writes a number of bytes as a policy has it, in the largest unit that holds
// it exactly, such as 64KiB. It is not negative.
func SizeText(n int64) string {
	for _, unit := range []struct {
		name string
		is   int64
	}{{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}} {
		if n >= unit.is && n%unit.is == 0 {
			return strconv.FormatInt(n/unit.is, 10) + unit.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}
