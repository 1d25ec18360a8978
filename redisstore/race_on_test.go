//go:build race

package redisstore

// raceDetector says that everything is many times slower.
const raceDetector = true
