package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
)

// The scripts. Their texts are constant: what a call is about is in its arguments,
// so Redis compiles each of them once.
var (
	//go:embed scripts/bucket.lua
	bucketText string
	//go:embed scripts/states.lua
	statesText string
	//go:embed scripts/take.lua
	takeText string
	//go:embed scripts/settle.lua
	settleText string
	//go:embed scripts/heartbeat.lua
	heartbeatText string
)

// A script is a text and the name by which Redis knows it.
type script struct{ text, sha string }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:])}
}

// eval runs a script by its name. One that Redis does not know has not run, so it is
// sent once more with its text: nothing has to be loaded beforehand, and a flush or a
// failover needs no care.
func eval(ctx context.Context, c Client, sc *script, command []string) (any, error) {
	reply, err := c.Do(ctx, command...)
	if server, ok := errors.AsType[ServerError](err); ok && server.code() == "NOSCRIPT" {
		command[0], command[1] = "EVAL", sc.text
		reply, err = c.Do(ctx, command...)
	}
	if err != nil {
		return nil, classify(err)
	}
	return reply, nil
}

// scripts are those of a store.
type scripts struct {
	bucket    *script // batches of token buckets
	take      *script // any batches
	settle    *script
	heartbeat *script
}

func newScripts() scripts {
	return scripts{
		bucket: newScript(bucketText), take: newScript(statesText + takeText),
		settle: newScript(statesText + settleText), heartbeat: newScript(heartbeatText),
	}
}
