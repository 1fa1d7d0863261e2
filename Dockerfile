# syntax=docker/dockerfile:1
#   docker build --target cpu --tag polyrhythm .
#   mkdir -p runs && chmod a+w runs    # in which the container's user, polyrhythm, writes
#   docker run --rm --volume "$PWD/runs:/home/polyrhythm/runs" polyrhythm run --rounds 3
#   docker run --rm --volume "$PWD/runs:/home/polyrhythm/runs" --publish 127.0.0.1:8642:8642 polyrhythm ui runs --host 0.0.0.0
# In .dockerignore .git is left out: --build-arg COMMIT="$(git rev-parse HEAD)" has `polyrhythm --version` name the commit.

FROM python:3.11-slim-bookworm AS wheel
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . /source
ARG COMMIT=""
RUN POLYRHYTHM_COMMIT="$COMMIT" pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:3.11-slim-bookworm AS base
RUN useradd --create-home polyrhythm
WORKDIR /home/polyrhythm
ENTRYPOINT ["polyrhythm"]
CMD ["--help"]

# PyTorch for processors alone: the index of its CPU builds is named by whoever builds, since it is not ours to choose,
#   --build-arg TORCH="--index-url ADDRESS" ; without it pip takes its default build, which may bring CUDA libraries.
FROM base AS cpu
ARG TORCH=""
COPY --from=wheel /wheels /wheels
COPY constraints.txt /wheels/
RUN pip install --no-cache-dir --constraint /wheels/constraints.txt $TORCH torch \
    && for wheel in /wheels/*.whl; do pip install --no-cache-dir --constraint /wheels/constraints.txt "polyrhythm[ui,parquet,images,sweep] @ file://$wheel"; done
USER polyrhythm

# Untried: nobody has built or run this stage on a machine with a GPU. PyTorch's default build for Linux brings CUDA.
#   docker build --target cuda --tag polyrhythm:cuda . && docker run --rm --gpus all polyrhythm:cuda run --device cuda
FROM base AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=wheel /wheels /wheels
RUN for wheel in /wheels/*.whl; do pip install --no-cache-dir "polyrhythm[ui,parquet,images,sweep] @ file://$wheel"; done
USER polyrhythm
