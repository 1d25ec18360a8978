package main

import (
	"github.com/gin-gonic/gin"

	"github.com/drossel-io/drossel/httplimit"
	"github.com/drossel-io/drossel/identity"
	"github.com/drossel-io/drossel/policy"
)

// limit returns middleware that decides every request by lim. attributes are those that the code before it
// has verified, by name: they win over what the request says, and an empty one is missing.
func limit(lim *policy.Limiter, attributes func(*gin.Context) map[string]string) gin.HandlerFunc {
	renderer := httplimit.NewRenderer(lim.Policy(), nil)
	return func(c *gin.Context) {
		req := identity.FromHTTP(c.Request)
		req.Given = attributes(c)
		ctx := c.Request.Context()
		d := lim.Decide(ctx, &req)
		served := d.Serve(ctx, func() (status int) {
			renderer.SetFields(c.Writer.Header(), d)
			c.Next()
			return c.Writer.Status()
		})
		if !served {
			renderer.Deny(c.Writer, c.Request.Method, d)
			c.Abort()
		}
	}
}
