package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

func init() { programs["forward"] = runForward }

// runForward carries TCP connections between this machine's loopback and the cluster's
// network namespace. To the API server, for a test on the machine:
//
//	forward -listen 127.0.0.1:16443 -to-netns /run/netns/margay-test -to 172.31.10.1:6443
//
// and back, for pods or webhooks that must reach a server of the test:
//
//	forward -netns /run/netns/margay-test -listen 172.31.10.1:8443 -to 127.0.0.1:8443
func runForward() {
	listenNamespace := flag.String("netns", "", "network namespace to listen in; this one if empty")
	address := flag.String("listen", "", "address to listen on")
	dialNamespace := flag.String("to-netns", "", "network namespace to dial in; this one if empty")
	target := flag.String("to", "", "address to dial")
	flag.Parse()
	var listener net.Listener
	err := inNamespace(*listenNamespace, func() (err error) {
		listener, err = net.Listen("tcp", *address)
		return err
	})
	for err == nil {
		var client net.Conn
		if client, err = listener.Accept(); err == nil {
			go carry(client.(*net.TCPConn), *dialNamespace, *target)
		}
	}
	fail(err)
}

func carry(client *net.TCPConn, namespace, target string) {
	defer client.Close()
	var server net.Conn
	err := inNamespace(namespace, func() (err error) {
		server, err = net.Dial("tcp", target)
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer server.Close()
	go pour(server.(*net.TCPConn), client)
	pour(client, server.(*net.TCPConn))
}

// pour copies until the source ends and passes the end on; the other direction goes on.
func pour(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from) // a cut connection is this connection's end, nothing else
	_ = to.CloseWrite()
}

// inNamespace calls work on a thread of its own in the given network namespace; a socket
// made there stays there. The thread is never unlocked, so it ends with its goroutine.
func inNamespace(path string, work func() error) error {
	if path == "" {
		return work()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- func() error {
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return work()
		}()
	}()
	return <-done
}
