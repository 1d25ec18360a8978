// Package faults puts a real Redis into trouble while decisions are asked for, and
// prints how long they took and when all was well again: make faults.
package faults
