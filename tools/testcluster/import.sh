#!/usr/bin/env bash
# Gives image archives (OCI) to a running cluster: import.sh ARCHIVE…
# Pods name them as the archive does, with imagePullPolicy: Never.
set -euo pipefail
. "$(dirname "$0")/settings.sh"
for archive in "$@"; do
  ctr --address "$RUN/containerd.sock" --namespace k8s.io images import "$archive"
done
