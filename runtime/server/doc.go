// Package server is the daemon's HTTPS server: health, the running
// configuration, metrics, debugging, and a status page for people. It reads
// the state of the other parts through the functions in [Sources] and owns
// nothing but its listener, its certificates and who may call it.
package server
