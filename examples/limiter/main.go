// Command limiter uses the bare limiter: no HTTP, any key.
//
//	go run ./limiter
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/drossel-io/drossel"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, w io.Writer) error {
	// Each user may export 3 reports at once, and one more every 20 minutes.
	exports, err := drossel.New(drossel.PerHour(3), nil)
	if err != nil {
		return err
	}
	for _, user := range []string{"ada", "ada", "bob", "ada", "ada"} {
		d, err := exports.Take(ctx, user)
		if err != nil {
			return err
		}
		if d.Allowed {
			fmt.Fprintf(w, "%s: exported, %d left\n", user, d.Remaining)
			continue
		}
		fmt.Fprintf(w, "%s: try again in %.0f minutes\n", user, d.RetryAfter.Minutes())
	}
	return nil
}
