# shellcheck shell=bash disable=SC2034
# Settings and small functions that the scripts of this folder share. Each setting can be given in the environment.
: "${MARGAY_CLUSTER_NAME:=test}"     # clusters of different names and ports run side by side
: "${MARGAY_CLUSTER_PORT:=16443}"    # where this machine's loopback reaches the API server
: "${MARGAY_CLUSTER_METRICS:=0}"     # 1: a metrics server too, for `kubectl top` and autoscalers (10 s more)
: "${MARGAY_CLUSTER_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/margay/testcluster}" # the built binary, kept between runs

NAME=margay-$MARGAY_CLUSTER_NAME     # of everything a cluster makes on this machine
STATE=/var/lib/$NAME                 # its files, RUN: its sockets and pid files; removed by down.sh
RUN=/run/$NAME
CGROUP=/$NAME                        # holds all its pods, in every cgroup tree
NODE_ADDRESS=172.31.10.1             # addresses below exist only in the cluster's own network namespace
POD_RANGE=10.244.0.0/24
SERVICE_RANGE=10.96.0.0/16
API_SERVICE=10.96.0.1
DNS_SERVICE=10.96.0.10
METADATA_ADDRESS=169.254.169.254     # where clouds answer with credentials; the node holds it so that probes can try
BINARY=$MARGAY_CLUSTER_CACHE/bin/testcluster
PAUSE_IMAGE=$MARGAY_CLUSTER_CACHE/pause.tar

say() { printf '[cluster %3ds] %s\n' "$SECONDS" "$*" >&2; }
cgroup_trees() { awk '$3 ~ /^cgroup2?$/ { print $2 }' /proc/mounts; }
own_cgroups() { for tree in $(cgroup_trees); do [ ! -d "$tree$CGROUP" ] || echo "$tree$CGROUP"; done; }
