#!/usr/bin/env bash
# Brings KEDA up in the running cluster that the settings name, and waits until it serves metrics.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../settings.sh"
export KUBECONFIG=$STATE/pki/host.yaml
kubectl() { "$BINARY" kubectl "$@"; }
programs=$("$here/build.sh")

kubectl apply --server-side -f "$programs/crds" >/dev/null
kubectl create namespace keda >/dev/null
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
names=DNS:keda-operator.keda.svc,DNS:keda-operator,DNS:keda-metrics-apiserver.keda.svc
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=keda-ca \
  -keyout "$folder/ca.key" -out "$folder/ca.crt" 2>"$folder/log"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=keda-operator \
  -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -addext "subjectAltName=$names" -addext basicConstraints=critical,CA:FALSE \
  -keyout "$folder/tls.key" -out "$folder/tls.crt" 2>"$folder/log" || { cat "$folder/log" >&2; exit 1; }
kubectl -n keda create secret generic kedaorg-certs --from-file="$folder/ca.crt" --from-file="$folder/tls.crt" \
  --from-file="$folder/tls.key" >/dev/null
sed "s#@PROGRAMS@#$programs#" "$here/keda.yaml" | kubectl apply -f - >/dev/null
kubectl -n keda rollout status deployment/keda-operator --timeout=120s >&2
kubectl -n keda rollout status deployment/keda-metrics-apiserver --timeout=120s >&2
kubectl wait --for=condition=Available apiservice/v1beta1.external.metrics.k8s.io --timeout=60s >&2
say 'KEDA serves metrics'
