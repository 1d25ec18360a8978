package grpclimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/drossel-io/drossel"
	"github.com/drossel-io/drossel/policy"
)

// Domain is that of the ErrorInfo in a status.
const Domain = "github.com/drossel-io/drossel"

// reasonRateLimit is the reason of a denial that only means too many calls.
const reasonRateLimit = "RATE_LIMIT_EXCEEDED"

// Status returns the status that answers a call that d denies: RESOURCE_EXHAUSTED, or
// UNAVAILABLE if the denial's HTTP status is 503. Its details are
//
//   - RetryInfo, the exact wait; there is none if no wait will do,
//   - QuotaFailure, one violation for each limit that denies and may be named, with an
//     opaque ID of the key as its subject,
//   - ErrorInfo with the reason RATE_LIMIT_EXCEEDED, or the decision's own code where
//     that says more, and the code, the decision's ID and the limits as its metadata.
func Status(d *policy.Decision) *status.Status {
	code := codes.ResourceExhausted
	if d.Status == http.StatusServiceUnavailable {
		code = codes.Unavailable
	}
	wait := d.Wait()
	details := []protoadapt.MessageV1{}
	if wait != drossel.Never {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	info := newInfo(d.Code, d.Batch.ID)
	if failure := violations(d); len(failure.Violations) > 0 {
		details = append(details, failure)
		names := make([]string, len(failure.Violations))
		for i, v := range failure.Violations {
			names[i] = v.QuotaId
		}
		info.Metadata["policy"] = strings.Join(names, ",")
	}
	return detailed(code, policy.Message(d.Code, wait), append(details, info)...)
}

// Problem returns the status of a call that failed with this HTTP status and reason
// before a server of gRPC could answer it, such as UPSTREAM_FAILED. The ID may be zero.
func Problem(httpStatus int, reason, message string, id drossel.ID) *status.Status {
	return detailed(codeOf(httpStatus), message, newInfo(reason, id))
}

func detailed(code codes.Code, message string, details ...protoadapt.MessageV1) *status.Status {
	s, err := status.New(code, message).WithDetails(details...)
	if err != nil { // a code other than OK has details
		return status.New(code, message)
	}
	return s
}

func newInfo(reason string, id drossel.ID) *errdetails.ErrorInfo {
	info := &errdetails.ErrorInfo{Reason: reason, Domain: Domain, Metadata: map[string]string{"code": reason}}
	if reason == policy.CodeRateLimited {
		info.Reason = reasonRateLimit
	}
	if id != (drossel.ID{}) {
		info.Metadata["id"] = id.String()
	}
	return info
}

// violations are of the limits that deny and may be named.
func violations(d *policy.Decision) *errdetails.QuotaFailure {
	failure := &errdetails.QuotaFailure{}
	for i := range d.Batch.Checks {
		c := &d.Batch.Checks[i]
		if c.Allowed || !d.Limits[i].Shown() || d.Batch.By >= drossel.ByOpen {
			continue
		}
		limit := c.Budget.Limit()
		failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
			Subject:     d.KeyID(i),
			Description: limit.String(),
			QuotaId:     c.Budget.Name(),
			QuotaValue:  limit.Quota,
		})
	}
	return failure
}

// Pushback returns the value of grpc-retry-pushback-ms for a wait: milliseconds,
// rounded up, or -1 if no wait will do.
func Pushback(wait time.Duration) string {
	if wait == drossel.Never {
		return "-1"
	}
	ms := wait.Milliseconds()
	if wait > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return strconv.FormatInt(ms, 10)
}

// HTTPStatus returns the HTTP status that says what a gRPC code says: 401 for
// UNAUTHENTICATED. It is what charge_on compares.
func HTTPStatus(code codes.Code) int {
	switch code {
	case codes.OK:
		return http.StatusOK
	case codes.Canceled:
		return 499 // the client closed the request
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// codeOf returns the gRPC code of a call that a proxy answered with an HTTP status. A
// timeout is not UNAVAILABLE: that invites to call again what may have been done.
func codeOf(httpStatus int) codes.Code {
	switch httpStatus {
	case http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusRequestHeaderFieldsTooLarge, http.StatusRequestURITooLong:
		return codes.ResourceExhausted
	case http.StatusRequestTimeout, http.StatusGatewayTimeout:
		return codes.DeadlineExceeded
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return codes.Unimplemented
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return codes.Unavailable
	}
	if httpStatus >= 400 && httpStatus < 500 {
		return codes.InvalidArgument
	}
	return codes.Internal
}
