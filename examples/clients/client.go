// Command clients is a client that waits as it is told: client METHOD URL...
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/drossel-io/drossel/httplimit"
)

// newClient returns a client that sends a request that is denied again after the wait that the answer
// asks for. Its Timeout is for all of that: a wait that would not fit is not begun, and the denial is
// returned.
func newClient() *http.Client {
	return &http.Client{
		Transport: &httplimit.Transport{Tries: 4, MaxWait: time.Minute},
		Timeout:   90 * time.Second,
	}
}

func main() {
	client := newClient()
	method, urls := os.Args[1], os.Args[2:]
	for _, url := range urls {
		if err := show(context.Background(), os.Stdout, client, method, url); err != nil {
			log.Fatal(err)
		}
	}
}

func show(ctx context.Context, to io.Writer, client *http.Client, method, url string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(to, res.StatusCode, string(body))
	return err
}
