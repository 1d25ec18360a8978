package main

import (
	"github.com/labstack/echo/v5"

	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// limit returns middleware that decides every request by lim. attributes are those that the code before it
// has verified, by name: they win over what the request says, and an empty one is missing.
func limit(lim *policy.Limiter, attributes func(*echo.Context) map[string]string) echo.MiddlewareFunc {
	renderer := httplimit.NewRenderer(lim.Policy(), nil)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) (err error) {
			req := identity.FromHTTP(c.Request())
			req.Given = attributes(c)
			ctx := c.Request().Context()
			d := lim.Decide(ctx, &req)
			served := d.Serve(ctx, func() (status int) {
				renderer.SetFields(c.Response().Header(), d)
				err = next(c)
				_, status = echo.ResolveResponseStatus(c.Response(), err) // what an error will be answered with
				return status
			})
			if !served {
				renderer.Deny(c.Response(), c.Request().Method, d)
			}
			return err
		}
	}
}
