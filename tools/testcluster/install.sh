#!/usr/bin/env bash
# Installs what the test cluster needs beside its binary, from Debian's packages (15 s the first time).
set -euo pipefail
needed=(containerd runc containernetworking-plugins iptables ipset nftables conntrack iproute2 openssl curl gcc libc6-dev)
missing=()
for package in "${needed[@]}"; do
  dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0
command -v apt-get >/dev/null || { echo "please install: ${missing[*]}" >&2; exit 1; }
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
