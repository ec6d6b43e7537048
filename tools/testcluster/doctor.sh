#!/usr/bin/env bash
# Whether this machine can run the test cluster: exit 0, or exit 3 after one line that says why not.
. "$(dirname "$0")/settings.sh"
no() { echo "$*"; exit 3; }

[ "$(uname -s)" = Linux ] || no "needs Linux, and this is $(uname -s)"
case $(uname -m) in x86_64 | aarch64) ;; *) no "needs x86_64 or aarch64, and this is $(uname -m)" ;; esac
[ "$(id -u)" = 0 ] || no "needs root for namespaces, cgroups and iptables"
[ "$(nproc)" -ge 2 ] || no "needs 2 processors"
[ "$(awk '/^MemTotal/ { print int($2 / 1000000) }' /proc/meminfo)" -ge 6 ] || no "needs 6 GB of memory"
[ "$(awk '/^MemAvailable/ { print int($2 / 1000000) }' /proc/meminfo)" -ge 3 ] || no "needs 3 GB of free memory"
for controller in cpu memory pids; do
  cat /proc/cgroups /sys/fs/cgroup/cgroup.controllers 2>/dev/null | grep -qw "$controller" ||
    no "the kernel has no cgroup controller '$controller'"
done
[ -x "$BINARY" ] || command -v go >/dev/null || no "needs Go once, to build Kubernetes (tools/testcluster/build.sh)"
for tool in containerd runc ip nsenter unshare iptables ipset nft conntrack openssl curl gcc; do
  command -v "$tool" >/dev/null || no "needs '$tool' (tools/testcluster/install.sh)"
done
[ -x /usr/lib/cni/bridge ] || no "needs the CNI plugins in /usr/lib/cni (tools/testcluster/install.sh)"
grep -qw overlay /proc/filesystems || no "the kernel has no overlayfs"
probe=margay-doctor-$$
ip netns add "$probe" 2>/dev/null || no "may not make a network namespace"
trap 'ip netns del "$probe"' EXIT
nsenter --net="/run/netns/$probe" sh -ec '
  ip link add probe type bridge
  iptables -w -N PROBE
  ipset create probe hash:ip
  sysctl -q net.bridge.bridge-nf-call-iptables' >/dev/null 2>&1 ||
  no "the kernel lacks bridges, iptables, ipset or br_netfilter"
