// Command clients is a client that waits as it is told: client METHOD URL...
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/drossel-io/drossel/httplimit"
)

// client sends a request that is denied again after the wait that the answer asks for. Its Timeout
// is for all of that: a wait that would not fit is not begun, and the denial is returned.
var client = &http.Client{
	Transport: &httplimit.Transport{Tries: 4, MaxWait: time.Minute},
	Timeout:   90 * time.Second,
}

func main() {
	method, urls := os.Args[1], os.Args[2:]
	for _, url := range urls {
		if err := show(method, url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func show(method, url string) error {
	req, err := http.NewRequest(method, url, nil)
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
	fmt.Println(res.StatusCode, string(body))
	return nil
}
