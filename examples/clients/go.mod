module github.com/drossel-io/drossel/examples/clients

go 1.26.0

replace github.com/drossel-io/drossel => ../../

require (
	github.com/drossel-io/drossel v0.0.0
	github.com/evanw/esbuild v0.28.2
	github.com/google/go-cmp v0.7.0
)

require (
	github.com/dunglas/httpsfv v1.1.2 // indirect
	github.com/gaissmai/bart v0.30.0 // indirect
	github.com/goccy/go-yaml v1.19.2 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.44.0 // indirect
)
