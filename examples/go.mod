module github.com/drossel-io/drossel/examples

go 1.26.0

replace github.com/drossel-io/drossel => ../

ignore ./decisions/node_modules

require github.com/drossel-io/drossel v0.0.0

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/gaissmai/bart v0.30.0 // indirect
	github.com/goccy/go-yaml v1.19.2 // indirect
	golang.org/x/text v0.44.0 // indirect
)
