# shellcheck shell=bash
# Keys, certificates and configuration files of the node; sourced by node.sh in the folder of the keys.

write_keys() {
  local authority client
  for authority in ca front-ca; do
    new_key "$authority"
    openssl req -x509 -new -key "$authority.key" -out "$authority.crt" -days 3650 -subj "/CN=$authority"
  done
  new_key sa
  openssl pkey -in sa.key -pubout -out sa.pub
  certificate apiserver /CN=kube-apiserver ca "DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,\
DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$API_SERVICE,IP:$NODE_ADDRESS"
  certificate kubelet /O=system:nodes/CN=system:node:node1 ca "DNS:node1,IP:$NODE_ADDRESS"
  certificate admin /O=system:masters/CN=admin ca
  certificate controllers /CN=system:kube-controller-manager ca
  certificate scheduler /CN=system:kube-scheduler ca
  certificate proxy /CN=system:kube-proxy ca
  certificate front-proxy /CN=front-proxy front-ca
  for client in admin controllers scheduler proxy kubelet; do
    kubeconfig "$client" "https://$NODE_ADDRESS:6443" >"$client.yaml"
  done
  kubeconfig admin "https://127.0.0.1:$MARGAY_CLUSTER_PORT" >host.draft
  mv host.draft host.yaml # whole from the moment it can be seen
}

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }

certificate() { # NAME SUBJECT AUTHORITY [ALTERNATIVE-NAMES]
  new_key "$1"
  openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  cat >"$1.ext" <<EXTENSIONS
basicConstraints=CA:FALSE
keyUsage=digitalSignature
extendedKeyUsage=serverAuth,clientAuth
${4:+subjectAltName=$4}
EXTENSIONS
  openssl x509 -req -in "$1.csr" -CA "$3.crt" -CAkey "$3.key" -CAcreateserial -out "$1.crt" -days 3650 -extfile "$1.ext"
}

kubeconfig() { # CERTIFICATE SERVER
  cat <<CONFIG
apiVersion: v1
kind: Config
clusters: [{ name: cluster, cluster: { server: "$2", certificate-authority-data: $(base64 -w0 ca.crt) } }]
users:
  - name: user
    user: { client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key") }
contexts: [{ name: $NAME, context: { cluster: cluster, user: user } }]
current-context: $NAME
CONFIG
}

write_settings() {
  network_settings >"$STATE/cni/10-margay.conflist"
  containerd_settings >"$STATE/containerd.toml"
  kubelet_settings >"$STATE/kubelet.yaml"
  audit_settings >"$STATE/audit-policy.yaml"
}

network_settings() {
  cat <<JSON
{ "cniVersion": "0.4.0", "name": "margay", "plugins": [
  { "type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
    "ipam": { "type": "host-local", "dataDir": "$RUN/addresses", "ranges": [[{ "subnet": "$POD_RANGE" }]],
              "routes": [{ "dst": "0.0.0.0/0" }] } },
  { "type": "portmap", "capabilities": { "portMappings": true } }] }
JSON
}

containerd_settings() {
  local unused=(snapshotter.v1.{aufs,btrfs,devmapper,zfs} tracing.processor.v1.otlp internal.v1.tracing)
  cat <<TOML
version = 2
root = "$STATE/containerd"
state = "$RUN/containerd"
disabled_plugins = [$(printf '"io.containerd.%s",' "${unused[@]}")]
[grpc]
  address = "$RUN/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$STATE/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "local.test/pause:1"
  restrict_oom_score_adj = true # root has no CAP_SYS_RESOURCE on many test machines
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$STATE/cni"
TOML
}

kubelet_settings() {
  cat <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false # true since Kubernetes 1.35, and test machines may still have version 1
cgroupDriver: cgroupfs
cgroupRoot: $CGROUP
enforceNodeAllocatable: [pods]
containerRuntimeEndpoint: unix://$RUN/containerd.sock
authentication:
  anonymous: { enabled: false }
  webhook: { enabled: true }
  x509: { clientCAFile: $STATE/pki/ca.crt }
authorization: { mode: Webhook }
tlsCertFile: $STATE/pki/kubelet.crt
tlsPrivateKeyFile: $STATE/pki/kubelet.key
clusterDNS: [$DNS_SERVICE]
clusterDomain: cluster.local
resolvConf: ""
oomScoreAdj: 0
podLogsDir: $STATE/podlogs
podPidsLimit: 1024
maxPods: 110
evictionHard: { memory.available: 100Mi, nodefs.available: "1%", nodefs.inodesFree: "1%", imagefs.available: "1%" }
imageGCHighThresholdPercent: 100 # an imported image that was removed could not be pulled again
imageGCLowThresholdPercent: 99
registryPullQPS: 0
serializeImagePulls: false
syncFrequency: 10s
YAML
}

# Who wrote what: the tests count the writes of our services. Nodes, controllers, leases and events are left out.
audit_settings() {
  cat <<YAML
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - { level: None, userGroups: ["system:nodes", "system:serviceaccounts:kube-system"] }
  - { level: None, users: ["system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy", "system:apiserver"] }
  - { level: None, resources: [{ group: coordination.k8s.io }, { group: authentication.k8s.io }, { group: authorization.k8s.io }] }
  - { level: None, resources: [{ resources: [events] }, { group: events.k8s.io }] }
  - { level: Metadata, verbs: [create, update, patch, delete, deletecollection] }
  - { level: None }
YAML
}
