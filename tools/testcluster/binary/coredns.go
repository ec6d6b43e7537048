package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func init() { programs["coredns"] = runCoreDNS }

// runCoreDNS serves the cluster's own names. The order is the order of the plugins in a
// query: template comes last and answers every foreign name at once with NXDOMAIN,
// since there is no internet to ask.
func runCoreDNS() {
	dnsserver.Directives = []string{
		"ready", "health", "bind", "errors", "log", "cache", "loadbalance", "kubernetes", "template",
	}
	coremain.Run()
}
