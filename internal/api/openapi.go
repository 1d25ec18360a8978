package api

import (
	_ "embed" // the description of the JSON API
	"net/http"
)

//go:embed openapi.yaml
var openAPI []byte

// serveOpenAPI shows the description of the JSON API. It is no secret.
func serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		p := newProblem(http.StatusMethodNotAllowed, "", "the method must be GET")
		p.field, p.value = "Allow", "GET, HEAD"
		p.write(w, r.Method)
		return
	}
	send(w, http.StatusOK, "application/yaml", openAPI, r.Method != http.MethodHead)
}
