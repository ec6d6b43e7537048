package main

import (
	"errors"
	"os"

	helm "helm.sh/helm/v4/pkg/cmd"
	"helm.sh/helm/v4/pkg/kube"
)

func init() { programs["helm"] = runHelm }

func runHelm() {
	kube.ManagedFieldsManager = "helm"
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err == nil {
		err = command.Execute()
	}
	var coded helm.CommandError
	switch {
	case err == nil:
	case errors.As(err, &coded):
		os.Exit(coded.ExitCode)
	default:
		fail(err)
	}
}
