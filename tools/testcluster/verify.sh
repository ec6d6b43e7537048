#!/usr/bin/env bash
# Whether a cluster that up.sh started really does what the product relies on: the specifications of test/cluster about Kubernetes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/settings.sh"
export KUBECONFIG=$STATE/pki/host.yaml MARGAY_TEST_AUDIT_LOG=$STATE/log/audit.log MARGAY_TEST_CLUSTER=existing
exec node "$here/../test-cluster.mjs" kubernetes
