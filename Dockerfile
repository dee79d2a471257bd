# Two images with the course set up and JupyterLab on port 8888:
#   docker build --target cpu -t cutetut .      && docker run --rm -p 127.0.0.1:8888:8888 cutetut
#   docker build --target gpu -t cutetut:gpu .  && docker run --rm --gpus all -p 127.0.0.1:8888:8888 cutetut:gpu
# The address that it prints has the token in it.

FROM python:3.12-slim-bookworm AS cpu
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends chromium chromium-driver git make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 learner \
    && install -d -o 1000 -g 1000 /home/learner/cutetut
# Not every builder gives the user a folder that WORKDIR makes; this one is there.
USER 1000
WORKDIR /home/learner/cutetut
COPY --chown=1000:1000 . .
# torch without CUDA is a tenth of the size.
ENV PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
RUN make setup && rm -rf ~/.cache/pip
EXPOSE 8888
CMD ["make", "lab", "LAB=--ip=0.0.0.0 --no-browser"]

# torch and CUDA's libraries come with this image; the driver is the host's, which must be for CUDA 13 or newer.
FROM pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime AS gpu
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends git make python3-venv \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /workspace/cutetut
COPY . .
# No GPU can be seen while an image is built, so say that this torch is the one to use.
RUN make setup SYSTEM_TORCH=1 && rm -rf /root/.cache/pip
EXPOSE 8888
CMD ["make", "lab", "LAB=--ip=0.0.0.0 --no-browser"]
