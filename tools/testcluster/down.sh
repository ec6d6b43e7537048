#!/usr/bin/env bash
# Ends a cluster and removes all it left: processes, pods, mounts, cgroups, the network namespace, files; after a crash
# too. A process is the cluster's if it is in the cluster's network namespace (the programs of node.sh, containerd's
# shims) or in its cgroup (everything in pods). No other process is touched.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/settings.sh"

of_node() { ip netns pids "$NAME" 2>/dev/null; }
of_pods() { for group in $(own_cgroups); do find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null; done | sort -u; }
send() { # SIGNAL LIST
  local pids
  pids=$("$2")
  # shellcheck disable=SC2086 # a list of numbers
  [ -z "$pids" ] || kill -s "$1" $pids 2>/dev/null
}
await_none() { # LIST TENTHS
  for _ in $(seq "$2"); do
    [ -n "$("$1")" ] || return 0
    sleep 0.1
  done
}

send TERM of_node
await_none of_node 20
send KILL of_node
await_none of_node 30 # from here on nothing starts pods again
send KILL of_pods
await_none of_pods 50

# The forwarder lives outside; its number may be another process's by now.
forwarder=$(cat "$RUN/forward.pid" 2>/dev/null)
if [ -n "$forwarder" ] && tr '\0' ' ' 2>/dev/null <"/proc/$forwarder/cmdline" | grep -q "/run/netns/$NAME "; then
  kill "$forwarder"
fi
ip netns del "$NAME" 2>/dev/null
awk -v state="$STATE/" -v run="$RUN/" 'index($2, state) == 1 || index($2, run) == 1 { print $2 }' /proc/mounts |
  sort -r | while read -r mount; do umount -l "$mount"; done
# A cgroup stays busy for a moment after its last process.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  for group in $(own_cgroups); do find "$group" -depth -type d -exec rmdir {} + 2>/dev/null; done
  [ -n "$(own_cgroups)" ] || break
  sleep 0.3
done
rm -rf "$STATE" "$RUN"
