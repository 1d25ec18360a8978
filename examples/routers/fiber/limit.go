package main

import (
	"net/http"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"

	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// limit returns middleware that decides every request by lim. attributes are those that the code before it
// has verified, by name: they win over what the request says, and an empty one is missing.
//
// fiber takes /Login for /login unless its configuration says CaseSensitive, and the policy does only with
// paths: {fold_case: true}. Both must say the same.
func limit(lim *policy.Limiter, attributes func(fiber.Ctx) map[string]string) fiber.Handler {
	renderer := httplimit.NewRenderer(lim.Policy(), nil)
	return func(c fiber.Ctx) error {
		req := describe(c)
		req.Given = attributes(c)
		d := lim.Decide(c.Context(), &req)
		served := d.Serve(c.Context(), func() (status int) {
			h := http.Header{}
			renderer.SetFields(h, d)
			for name, lines := range h {
				for _, line := range lines {
					c.Response().Header.Add(name, line)
				}
			}
			if err := c.Next(); err != nil {
				if err = c.App().ErrorHandler(c, err); err != nil { // answers with what the error says
					c.Status(fiber.StatusInternalServerError)
				}
			}
			return c.Response().StatusCode()
		})
		if served {
			return nil
		}
		return adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			renderer.Deny(w, r.Method, d)
		})(c)
	}
}

// describe describes the request. Its texts are copies, because fasthttp uses its buffers again and an
// observer may keep the decision.
func describe(c fiber.Ctx) identity.Request {
	uri := c.Request().URI()
	peer := c.RequestCtx().RemoteAddr().String()
	if peer == "" {
		peer = "@" // an unnamed unix socket
	}
	return identity.Request{
		Method: string(c.Request().Header.Method()),
		Host:   string(c.Request().Host()),
		Path:   string(uri.PathOriginal()),
		Query:  string(uri.QueryString()),
		Peer:   peer,
		Fields: fields{c},
	}
}

// fields are the header fields of a request.
type fields struct{ c fiber.Ctx }

// Values implements identity.Fields.
func (f fields) Values(name string) []string {
	var lines []string
	for _, line := range f.c.Request().Header.PeekAll(name) {
		lines = append(lines, string(line))
	}
	return lines
}
