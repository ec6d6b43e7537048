#!/usr/bin/env bash
# Starts a single-node cluster and waits until its node and its DNS are ready. Prints the path of its kubeconfig.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/settings.sh"
[ -x "$BINARY" ] && [ -f "$PAUSE_IMAGE" ] || { echo "nothing built yet: run $here/build.sh first" >&2; exit 1; }
[ ! -e "/run/netns/$NAME" ] || { echo "cluster $NAME exists: run $here/down.sh first" >&2; exit 1; }

export KUBECONFIG=$STATE/pki/host.yaml
kubectl() { "$BINARY" kubectl "$@"; }
await() { # SECONDS WHAT COMMAND…
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ "$SECONDS" -lt "$until" ] || { echo "$what: not there in time; see $STATE/log" >&2; exit 1; }
    sleep 0.1
  done
  say "$what"
}

mkdir -p "$STATE" "$RUN"
ip netns add "$NAME"
setsid nsenter --net="/run/netns/$NAME" unshare --mount --propagation private "$here/node.sh" >"$STATE/node.log" 2>&1 </dev/null &
echo $! >"$RUN/node.pid"
setsid "$BINARY" forward -listen "127.0.0.1:$MARGAY_CLUSTER_PORT" -to-netns "/run/netns/$NAME" -to "$NODE_ADDRESS:6443" \
  >"$STATE/forward.log" 2>&1 </dev/null &
echo $! >"$RUN/forward.pid"

await 120 'API server answers' kubectl get --raw /readyz
manifests=(system)
[ "$MARGAY_CLUSTER_METRICS" != 1 ] || manifests+=(metrics)
for manifest in "${manifests[@]}"; do
  sed "s#@BINARY@#$(readlink -f "$BINARY")#; s#@DNS_SERVICE@#$DNS_SERVICE#" "$here/manifests/$manifest.yaml" |
    kubectl apply -f - >/dev/null
done
await 120 'node is there' kubectl get node node1
await 120 'node Ready' kubectl wait --for=condition=Ready node/node1 --timeout=2s
await 120 'DNS Ready' kubectl -n kube-system rollout status deployment/coredns --timeout=2s
# While an aggregated API has no backend, no namespace can be deleted.
[ "$MARGAY_CLUSTER_METRICS" != 1 ] ||
  await 120 'metrics Ready' kubectl wait --for=condition=Available apiservice/v1beta1.metrics.k8s.io --timeout=2s
echo "$KUBECONFIG"
