# SPDX-License-Identifier: Apache-2.0
# An image with the poseidon command, the Caffe trainer and PyTorch. docs/docker.md is the guide; scripts/try_image.sh builds and tries it.
#
#   docker build -t poseidon .                                   PyTorch for CPUs
#   docker build -t poseidon:cuda --build-arg TORCH=cuda .       PyTorch with CUDA, from the Python package index
#
# CPU_INDEX has PyTorch's builds for CPUs. Where it is empty, pip looks where it is configured to.
ARG CPU_INDEX=https://download.pytorch.org/whl/cpu

# The wheels. Any build of PyTorch serves: the trainer asks for its minor version alone.
FROM debian:12-slim AS wheels
ARG CPU_INDEX
WORKDIR /src/poseidon
COPY scripts/dependencies.txt scripts/setup.sh scripts/
RUN PIP_EXTRA_INDEX_URL="$CPU_INDEX" scripts/setup.sh wheel
COPY . .
RUN --mount=type=cache,target=/root/.cache/ccache \
    scripts/wheel.sh /wheels && scripts/wheel.sh --trainer /wheels
# As the image's own pip would install them: what follows is the layer that changes with every version, 90 MB.
RUN python3 -m venv /opt/poseidon && \
    /opt/poseidon/bin/pip install --no-index --no-deps --root /installed /wheels/*.whl

FROM debian:12-slim
LABEL org.opencontainers.image.title="Poseidon" \
      org.opencontainers.image.description="Data-parallel training of deep networks over ordinary Ethernet" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/library/debian:12-slim"
# Debian's packages have the versions of Debian 12.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates openssh-client python3 python3-venv && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --create-home --uid 1000 --shell /bin/bash poseidon && \
    install --directory --owner 1000 --group 1000 /work
ARG CPU_INDEX
ARG TORCH=cpu
# Without --no-compile: the user cannot write beside the packages, so that Python would compile them at every start.
RUN --mount=type=bind,source=scripts/dependencies.txt,target=/tmp/dependencies.txt \
    python3 -m venv /opt/poseidon && \
    torch=$(awk '$3 ~ /^torch==/ {print $3}' /tmp/dependencies.txt) && \
    case "$TORCH" in \
      cpu) set -- ${CPU_INDEX:+"--index-url=$CPU_INDEX"} ;; \
      cuda) set -- ;; \
      *) echo "Dockerfile: TORCH is '$TORCH', expected cpu or cuda" >&2; exit 2 ;; \
    esac && \
    /opt/poseidon/bin/pip install --no-cache-dir "$@" "$torch" numpy
COPY --from=wheels /installed/opt/poseidon /opt/poseidon
RUN /opt/poseidon/bin/pip check
ENV PATH=/opt/poseidon/bin:$PATH
USER 1000:1000
WORKDIR /work
# No HEALTHCHECK: a worker that is ill ends its job with a sentence and an exit code.
ENTRYPOINT ["poseidon"]
