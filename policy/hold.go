package policy

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/drossel-io/drossel"
)

// Hold waits for the Delay of a decision, which usually is 0. It returns false if ctx,
// the request's, ended first.
func Hold(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Serve holds an allowed request for its Delay, runs handle and calls Done with the status
// that handle returns. A place in flight is kept meanwhile. If handle panics, the status is
// 500, and the panic goes on. Serve returns false if handle has not run: the request is
// denied, or ctx, the request's, ended while it was held. Done has then been called too.
//
// It is for servers whose handlers say what they answered; httplimit and grpclimit have
// middleware for the others.
func (d *Decision) Serve(ctx context.Context, handle func() (status int)) bool {
	settled := context.WithoutCancel(ctx) // what is charged is settled even if the client is gone
	if !d.Allowed {
		d.Done(settled, Outcome{Status: d.Status})
		return false
	}
	if !Hold(ctx, d.Delay) {
		d.Done(settled, Outcome{Unserved: true})
		return false
	}
	outcome := Outcome{Status: 500}
	stop := d.KeepPlace(settled)
	defer func() {
		stop()
		d.Done(settled, outcome)
	}()
	outcome.Status = handle()
	return true
}

// KeepPlace renews the place in flight of a request that is running, if it has
// one, until stop is called, once; stop waits for a renewal that is under way. A place
// that is lost stays lost: the request goes on, as it has been answered.
func (d *Decision) KeepPlace(ctx context.Context) (stop func()) {
	every, held := d.InFlight()
	if !held {
		return func() {}
	}
	return Keep(every, func() bool {
		kept, err := d.Renew(ctx)
		return kept || err != nil
	})
}

// Keep calls renew every so often, which is more than 0, in a goroutine of its own,
// until renew returns false or stop is called. stop waits for a call that is under
// way; it must be called once.
func Keep(every time.Duration, renew func() bool) (stop func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				if !renew() {
					return
				}
			}
		}
	})
	return func() {
		close(ended)
		running.Wait()
	}
}

// Wait returns how long the client of a denial is told to wait: the longest of the
// checks that deny, and Jitter; drossel.Never if no wait will do. A place in flight
// may be free at any time: it is a second.
func (d *Decision) Wait() time.Duration {
	wait, denied := time.Duration(0), false
	for i := range d.Batch.Checks {
		c := &d.Batch.Checks[i]
		if c.Allowed || c.Shadow {
			continue
		}
		denied = true
		wait = max(wait, WaitFor(c.Budget, c.RetryAfter))
	}
	if !denied { // no limit was asked
		wait = d.RetryAfter
	}
	if wait == drossel.Never {
		return wait
	}
	return wait + d.Jitter()
}

// maxJitter is the most that is added to a wait.
const maxJitter = 30 * time.Second

// Jitter returns what Wait has added to the exact wait of a denial, as the policy's
// retry_jitter says: whole seconds, so that clients who are denied together do not
// come back together. It is the same whenever one asks.
func (d *Decision) Jitter() time.Duration { return time.Duration(d.later) * time.Second }

// jitter chooses seconds from 0 to so many percent of a wait.
func jitter(wait time.Duration, percent int) byte {
	if wait == drossel.Never {
		return 0
	}
	// Two steps, or a wait of months times percent would not fit.
	most := min(wait/100*time.Duration(percent)+wait%100*time.Duration(percent)/100, maxJitter)
	return byte(rand.IntN(int(most/time.Second) + 1))
}

// WaitFor is Wait, without Jitter, for one budget that denies for retryAfter, a
// drossel.Decision's.
func WaitFor(b *drossel.Budget, retryAfter time.Duration) time.Duration {
	if b.Limit().Algorithm == drossel.Concurrency && retryAfter != drossel.Never {
		return time.Second
	}
	return retryAfter
}

// Message says in a sentence what a denial with that code and wait means to its client.
// It names no limit.
func Message(code string, wait time.Duration) string {
	switch code {
	case CodeQuotaExceeded:
		return "The quota is used up."
	case CodeInFlight:
		return "Too many requests at the same time."
	case CodeOverloaded:
		return "Too much traffic for now."
	case CodeUnavailable:
		return "Requests cannot be counted for now."
	}
	if wait == drossel.Never {
		return "The request is more than a limit allows."
	}
	return "Too many requests."
}
