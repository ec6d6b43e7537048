package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func init() { programs["provisioner"] = runProvisioner }

func runProvisioner() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	root := flag.String("dir", "", "folder that gets one folder per volume")
	name := flag.String("name", "margay.test/dir", "what the StorageClass calls this provisioner")
	flag.Parse()
	rest, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	ctx := context.Background()
	volumes := directories{*root}
	controller.NewProvisionController(ctx, kubernetes.NewForConfigOrDie(rest), *name, volumes, controller.LeaderElection(false)).Run(ctx)
}

// directories gives each claim a folder below root: the only node is this machine.
type directories struct{ root string }

func (d directories) Provision(_ context.Context, options controller.ProvisionOptions) (*v1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(d.root, options.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	// The umask took bits from MkdirAll's mode, and pods run as any user.
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	claim := options.PVC.Spec
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   claim.AccessModes,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: claim.Resources.Requests[v1.ResourceStorage]},
			PersistentVolumeSource:        v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}},
		},
	}, controller.ProvisioningFinished, nil
}

func (d directories) Delete(_ context.Context, volume *v1.PersistentVolume) error {
	return os.RemoveAll(filepath.Join(d.root, volume.Name))
}
