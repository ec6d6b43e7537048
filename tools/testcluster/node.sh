#!/usr/bin/env bash
# The node: runs in the cluster's own network and mount namespaces (up.sh makes them) and stays in the foreground; TERM
# ends all that it started.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/settings.sh"
. "$here/node-files.sh"

prepare_mounts() {
  mount --make-rshared / # this mount namespace is ours: nothing leaks out of it
  mkdir -p /run/netns
  mount -t tmpfs tmpfs /run/netns # the pods' network namespaces are named here
  echo "nameserver $DNS_SERVICE" >"$STATE/resolv.conf"
  mount --bind "$STATE/resolv.conf" /etc/resolv.conf
  # The kubelet sets some machine-wide values if they are not as it wants them. It is shown files that say so, and the
  # machine's own stay as they are.
  local name
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
    kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    name=${setting%=*}
    echo "${setting#*=}" >"$STATE/sysctl/${name##*/}"
    mount --bind "$STATE/sysctl/${name##*/}" "/proc/sys/$name"
  done
}

# A bridge carries the node's addresses: not every kernel has dummy devices.
prepare_network() {
  ip link set lo up
  ip link add node0 type bridge
  ip address add "$NODE_ADDRESS/24" dev node0
  ip address add "$METADATA_ADDRESS/32" dev node0
  ip link set node0 up
  ip route add default dev node0
  sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1
}

started=()
start() { # NAME COMMAND…
  local name=$1
  shift
  "$@" >"$STATE/log/$name.log" 2>&1 </dev/null &
  started+=($!)
  echo $! >"$RUN/$name.pid"
}
stop_all() {
  kill "${started[@]}" 2>/dev/null
  sleep 1
  kill -KILL "${started[@]}" 2>/dev/null
  exit 0
}
answers() { "$BINARY" kubectl --kubeconfig admin.yaml "$@" >/dev/null 2>&1; }
await() { for _ in $(seq 600); do "$@" && return; sleep 0.2; done; }

start_etcd() {
  # Without fsync: this cluster lives for one test run.
  start etcd "$BINARY" etcd --data-dir "$STATE/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster default=http://127.0.0.1:2380
}

start_api_server() {
  start kube-apiserver "$BINARY" kube-apiserver --etcd-servers http://127.0.0.1:2379 \
    --advertise-address "$NODE_ADDRESS" --secure-port 6443 --service-cluster-ip-range "$SERVICE_RANGE" \
    --client-ca-file ca.crt --tls-cert-file apiserver.crt --tls-private-key-file apiserver.key \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file sa.pub \
    --service-account-signing-key-file sa.key \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged \
    --kubelet-client-certificate admin.crt --kubelet-client-key admin.key --kubelet-certificate-authority ca.crt \
    --kubelet-preferred-address-types InternalIP \
    --requestheader-client-ca-file front-ca.crt --requestheader-allowed-names front-proxy \
    --requestheader-extra-headers-prefix X-Remote-Extra- --requestheader-group-headers X-Remote-Group \
    --requestheader-username-headers X-Remote-User \
    --proxy-client-cert-file front-proxy.crt --proxy-client-key-file front-proxy.key --enable-aggregator-routing \
    --audit-policy-file "$STATE/audit-policy.yaml" --audit-log-path "$STATE/log/audit.log"
}

start_control() {
  start kube-controller-manager "$BINARY" kube-controller-manager --kubeconfig controllers.yaml \
    --authentication-kubeconfig controllers.yaml --authorization-kubeconfig controllers.yaml \
    --root-ca-file ca.crt --service-account-private-key-file sa.key --cluster-signing-cert-file ca.crt \
    --cluster-signing-key-file ca.key --use-service-account-credentials --leader-elect=false
  start kube-scheduler "$BINARY" kube-scheduler --kubeconfig scheduler.yaml \
    --authentication-kubeconfig scheduler.yaml --authorization-kubeconfig scheduler.yaml --leader-elect=false
}

start_node() {
  start kubelet "$BINARY" kubelet --config "$STATE/kubelet.yaml" --kubeconfig kubelet.yaml \
    --root-dir "$STATE/kubelet" --hostname-override node1 --node-ip "$NODE_ADDRESS"
  # A network namespace may not set the size of the connection table: kube-proxy is told to leave it alone.
  start kube-proxy "$BINARY" kube-proxy --kubeconfig proxy.yaml --proxy-mode nftables --cluster-cidr "$POD_RANGE" \
    --hostname-override node1 --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0s \
    --conntrack-tcp-timeout-close-wait 0s --healthz-bind-address 127.0.0.1:10256 \
    --metrics-bind-address 127.0.0.1:10249
  start provisioner "$BINARY" provisioner -kubeconfig admin.yaml -dir "$STATE/volumes"
}

trap stop_all TERM INT
mkdir -p "$STATE"/{pki,log,sysctl,cni,volumes} "$RUN"
for tree in $(cgroup_trees); do mkdir -p "$tree$CGROUP"; done
# A cgroup counts as one process: all pods together would get next to nothing beside a busy machine's own work.
for tree in $(cgroup_trees); do
  [ ! -w "$tree$CGROUP/cpu.shares" ] || echo 8192 >"$tree$CGROUP/cpu.shares"
  [ ! -w "$tree$CGROUP/cpu.weight" ] || echo 800 >"$tree$CGROUP/cpu.weight"
done
prepare_mounts
prepare_network
cd "$STATE/pki" || exit 1
write_keys 2>"$STATE/log/keys.log" >&2
write_settings
start containerd containerd --config "$STATE/containerd.toml"
start_etcd
start_api_server
await answers get --raw /readyz
say 'API server ready'
start_control
await "$here/import.sh" "$PAUSE_IMAGE" >/dev/null 2>"$STATE/log/import.log"
start_node
await answers get node node1
start netpol "$BINARY" netpol -kubeconfig admin.yaml -hostname-override node1 -service-cluster-ip-range "$SERVICE_RANGE"
say 'all started'
wait
