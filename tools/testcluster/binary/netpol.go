package main

import (
	"flag"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func init() { programs["netpol"] = runNetworkPolicies }

// runNetworkPolicies enforces NetworkPolicy with iptables and ipset: kube-router's policy
// controller alone, without its router, service proxy and network plugin.
func runNetworkPolicies() {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	config := options.NewKubeRouterConfig()
	config.EnableIPv4, config.EnableIPv6 = true, false
	config.IPTablesSyncPeriod = 30 * time.Second
	flag.StringVar(&config.HostnameOverride, "hostname-override", "", "name of the node")
	services := flag.String("service-cluster-ip-range", "10.96.0.0/16", "addresses of Services")
	flag.Parse()
	config.ClusterIPCIDRs = []string{*services}
	rest, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}

	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Add(1)
	go newPolicyController(kubernetes.NewForConfigOrDie(rest), config, stop).Run(drained(), stop, &running)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	close(stop)
	running.Wait()
}

func newPolicyController(client kubernetes.Interface, config *options.KubeRouterConfig, stop chan struct{}) *netpol.NetworkPolicyController {
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(stop)
	factory.WaitForCacheSync(stop)

	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		fail(err)
	}
	controller, err := netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &sync.Mutex{}, tables, sets)
	if err != nil {
		fail(err)
	}
	watch(pods, controller.PodEventHandler)
	watch(namespaces, controller.NamespaceEventHandler)
	watch(policies, controller.NetworkPolicyEventHandler)
	return controller
}

func watch(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
	if _, err := informer.AddEventHandler(handler); err != nil {
		fail(err)
	}
}

// drained takes the controller's heartbeats, which nobody needs here; it would block otherwise.
func drained() chan *healthcheck.ControllerHeartbeat {
	beats := make(chan *healthcheck.ControllerHeartbeat, 10)
	go func() {
		for range beats {
		}
	}()
	return beats
}
