package httplimit

import "strconv"

// The grammar of the rate-limit fields. Revision 11 of the draft,
// draft-ietf-httpapi-ratelimit-headers-11, may still change its names: they are
// here and nowhere else.
//
// Its fields are lists of strings with parameters (RFC 9651):
//
//	RateLimit-Policy: "api";q=100;w=60
//	RateLimit: "api";r=99;t=60
//
// Revision 6 has one number a field, and a list of numbers as RateLimit-Policy:
//
//	RateLimit-Policy: 100;w=60

// The fields, in the form that http.Header has them under.
const (
	fieldPolicy     = "Ratelimit-Policy"
	fieldLimit      = "Ratelimit"
	field6Limit     = "Ratelimit-Limit"
	field6Remaining = "Ratelimit-Remaining"
	field6Reset     = "Ratelimit-Reset"
	fieldXLimit     = "X-Ratelimit-Limit"
	fieldXRemaining = "X-Ratelimit-Remaining"
	fieldXReset     = "X-Ratelimit-Reset"
)

// The parameters of revision 11.
const (
	paramQuota     = ";q="
	paramUnit      = ";qu="
	paramWindow    = ";w="
	paramRemaining = ";r="
	paramTime      = ";t="

	unitInFlight = `"concurrent-requests"`
)

const listSeparator = ", "

// maxListed is how many limits a list names: a field must stay short.
const maxListed = 8

// quoted returns the name of a limit as a string of RFC 9651. Names are letters,
// digits and _ . - so that nothing in them is escaped.
func quoted(name string) string { return `"` + name + `"` }

// policyItem is a limit's item in RateLimit-Policy. A window of 0 is not said.
func policyItem(name string, quota, window int64, inFlight bool) string {
	item := quoted(name) + paramQuota + strconv.FormatInt(quota, 10)
	if inFlight {
		item += paramUnit + unitInFlight
	}
	return item + windowParam(window)
}

// policyItem6 is the same in revision 6.
func policyItem6(quota, window int64) string {
	return strconv.FormatInt(quota, 10) + windowParam(window)
}

func windowParam(window int64) string {
	if window == 0 {
		return ""
	}
	return paramWindow + strconv.FormatInt(window, 10)
}
