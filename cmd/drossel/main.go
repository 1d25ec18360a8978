// Command drossel puts rate limits in front of an HTTP API and answers questions about them.
//
//	drossel demo
//	drossel init policy.yaml
//	drossel serve policy.yaml
//	drossel check policy.yaml
//	drossel explain policy.yaml "GET /api/search" --ip 203.0.113.7
//	drossel simulate policy.yaml access.log
//	drossel test policy.test.yaml
//	drossel config show policy.yaml
//	drossel schema > policy.schema.json
//	drossel verify policy.yaml
//
// docs/cli.md describes the commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // calendar limits name time zones, and not every image has them
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
