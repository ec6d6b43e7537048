# syntax=docker/dockerfile:1
# The two images of Margay, from one build of the bundles:
#
#   docker build --target margay -t margay:0.1.0 .
#   docker build --target margay-sandbox -t margay-sandbox:0.1.0 .
#
# `npm run images` makes the same without a container engine (docs/cluster-tests.md). What is in them is said once, in
# tools/images/definitions.ts; a test keeps users, entry points and ports here equal to it.
ARG DEBIAN=bookworm
ARG NODE=24.22.3

FROM node:${NODE}-${DEBIAN} AS build
WORKDIR /src
COPY package.json package-lock.json ./
COPY libs libs
COPY services services
COPY tools tools
COPY tsconfig.base.json LICENSE ./
RUN npm ci --no-audit --no-fund --loglevel=error
RUN node tools/images.mjs --rootfs margay /rootfs/margay \
  && node tools/images.mjs --rootfs margay-sandbox /rootfs/margay-sandbox

# No distribution: Node, its libraries, certificates and the bundles. There is no shell and no package manager.
FROM scratch AS margay
COPY --from=build /rootfs/margay/ /
ENV PATH=/usr/local/bin:/usr/bin:/bin NODE_ENV=production HOME=/tmp SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
WORKDIR /tmp
USER 1000:1000
EXPOSE 8080/tcp 9090/tcp 9464/tcp
ENTRYPOINT ["/usr/bin/node", "/opt/margay/margay.cjs"]

# What agents need to work.
FROM debian:${DEBIAN}-slim AS margay-sandbox
COPY tools/images/sandbox-packages.txt /tmp/
RUN apt-get update -qq \
  && xargs -a /tmp/sandbox-packages.txt apt-get install -y -qq --no-install-recommends \
  && ln -s python3 /usr/bin/python \
  && rm -rf /var/lib/apt/lists/* /tmp/sandbox-packages.txt
COPY --from=build /rootfs/margay-sandbox/ /
RUN chown -R 1000:1000 /home/agent /workspace /margay
ENV PATH=/usr/local/bin:/usr/bin:/bin HOME=/home/agent LANG=C.UTF-8 GIT_TERMINAL_PROMPT=0
WORKDIR /workspace
USER 1000:1000
EXPOSE 7777/tcp
LABEL dev.margay.lsp=""
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/bin/node", "/opt/margay/sandboxd.cjs"]
