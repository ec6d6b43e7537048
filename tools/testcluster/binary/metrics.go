package main

import (
	"k8s.io/apiserver/pkg/server"
	metrics "sigs.k8s.io/metrics-server/cmd/metrics-server/app"
)

func init() {
	programs["metrics-server"] = func() { run(metrics.NewMetricsServerCommand(server.SetupSignalHandler())) }
}
