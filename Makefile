GO ?= go
FUZZTIME ?= 20s

# Debian packages of what tests start: the clients of examples/clients in other languages, and servers.
SERVERS := default-jdk-headless nodejs prometheus python3 redis-sentinel redis-server nginx-light caddy haproxy curl
# npm comes with some builds of nodejs, which then do without Debian's package of it.
SERVERS += $(if $(shell command -v npm),,npm)

# The modules beside the root, each with a go.mod of its own. What tools holds is tested too.
MODULES := $(patsubst %/go.mod,%,$(wildcard tools/go.mod bench/go.mod test/go.mod examples/go.mod examples/*/go.mod redisstore/*/go.mod clients/*/go.mod))
LINT := $(GO) tool -modfile=tools/go.mod golangci-lint

.PHONY: check format vet lint test servers race fuzz faults bench gen gen-check build help

check: format vet lint test ## format, vet, lint and test: what every commit passes

format: ## format all Go files
	$(LINT) fmt

vet: ## go vet, in all modules
	$(GO) vet ./...
	@set -e; for m in $(MODULES); do echo "$(GO) -C $$m vet ./..."; $(GO) -C $$m vet ./...; done

# Without the notes on exclusions that a small module has no use for.
lint: ## run the linters of .golangci.yml, in all modules
	$(LINT) run
	@set -e; for m in $(MODULES); do echo "golangci-lint run $$m/..."; \
	(cd $$m && LOG_LEVEL=error $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run); done

test: ## run all tests of all modules, and list the skipped ones
	@$(GO) -C tools run ./testall -shuffle=on -timeout=20m -- .. $(addprefix ../,$(MODULES))

SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
APT := $(SUDO) apt-get -q -y -o Dpkg::Use-Pty=0
servers: ## install what tests start (Debian packages)
	@if dpkg -s $(SERVERS) >/dev/null 2>&1; then echo "servers: $(SERVERS) are installed"; \
	else $(APT) update && DEBIAN_FRONTEND=noninteractive $(APT) install --no-install-recommends $(SERVERS); fi

race: ## run the tests with the race detector
	$(GO) test -race -shuffle=on ./...

fuzz: ## run every fuzz test for FUZZTIME (20s)
	@$(GO) -C tools run ./fuzzall .. $(FUZZTIME)

faults: ## put a real Redis into trouble, and print how long decisions and healing took
	$(GO) -C test test -count=1 -v ./faults

bench: ## measure against other rate limiters, in memory and on Redis, and the servers against bare ones
	$(GO) -C bench run .
	$(GO) -C bench run ./redis
	$(GO) -C bench run ./api
	$(GO) -C bench run ./gateway

gen: ## make the generated files again
	$(GO) generate ./...

# Compares before and after, so that it also works on changes that are not committed yet.
STATE = { git status --porcelain; git diff HEAD; } | git hash-object --stdin
gen-check: ## fail if a generated file is not what its source makes of it
	@before=$$($(STATE)) && $(GO) generate ./... && \
	if [ "$$before" != "$$($(STATE))" ]; then git status --short; echo "gen-check: run make gen and commit what it changes"; exit 1; fi

build: ## build the program into dist/
	$(GO) build -trimpath -o dist/ ./cmd/...

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
