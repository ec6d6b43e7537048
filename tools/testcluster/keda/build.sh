#!/usr/bin/env bash
# Builds KEDA's operator and its metrics server into the cache, once per version, and prints their folder. It has not run to
# its end yet.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../settings.sh"
export CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOTOOLCHAIN=local
objects=$MARGAY_CLUSTER_CACHE/go-build-keda
built=$MARGAY_CLUSTER_CACHE/bin/keda-$(cd "$here" && { go version; cat go.mod go.sum; } | sha256sum | cut -c1-16)

mkdir -p "$MARGAY_CLUSTER_CACHE/bin"
exec 9>"$MARGAY_CLUSTER_CACHE/build-keda.lock"
flock 9
if [ ! -d "$built" ]; then
  say "building KEDA, which takes minutes"
  rm -rf "$MARGAY_CLUSTER_CACHE"/bin/keda-*
  mkdir "$built.draft"
  (cd "$here" && GOCACHE=$objects go build -p 2 -trimpath -mod=readonly -ldflags '-s -w' -o "$built.draft/" \
    github.com/kedacore/keda/v2/cmd/operator github.com/kedacore/keda/v2/cmd/adapter) >&2
  cp -r "$(cd "$here" && go list -m -f '{{.Dir}}' github.com/kedacore/keda/v2)/config/crd/bases" "$built.draft/crds"
  chmod -R u+w "$built.draft"
  mv "$built.draft" "$built"
  [ -n "${MARGAY_CLUSTER_KEEP_OBJECTS:-}" ] || rm -rf "$objects"
fi
echo "$built"
