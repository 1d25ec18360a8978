package redisstore

import (
	"crypto/sha1" //nolint:gosec // how Redis names scripts
	_ "embed"
	"encoding/hex"
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
	sum := sha1.Sum([]byte(text)) //nolint:gosec // how Redis names scripts
	return &script{text, hex.EncodeToString(sum[:])}
}

// scripts are those of a store.
type scripts struct {
	bucket *script // batches of token buckets
	take   *script // any batches
	settle *script

	heartbeat *script
}

func newScripts() scripts {
	return scripts{newScript(bucketText), newScript(statesText + takeText), newScript(statesText + settleText), newScript(heartbeatText)}
}
