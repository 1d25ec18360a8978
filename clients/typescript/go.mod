module github.com/drossel-io/drossel/clients/typescript

go 1.26.0

ignore ./node_modules
