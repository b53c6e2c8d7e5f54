# The image of a federation's server and of its nodes; in a checkout: docker build -t fedpareto-flower .
# No secret is in it: keys, tables and preferences are mounted when it runs, as the compose files of a deployment do.

FROM python:3.12-slim AS build
# Wheels of torch without CUDA: the usual ones for Linux bring several GB of it along.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python -m venv /opt/fedpareto
ENV PATH=/opt/fedpareto/bin:$PATH
WORKDIR /src
# The largest and steadiest part first, so that a change of the sources does not fetch it again.
COPY requirements.lock ./
COPY tools/lock.py tools/
RUN python tools/lock.py > constraints.txt
RUN pip install --no-cache-dir --constraint constraints.txt --extra-index-url "$TORCH_INDEX" torch numpy
COPY LICENSE ./
COPY packages packages
# serve is for a node's model: fedpareto predict, and serve.
RUN pip install --no-cache-dir --constraint constraints.txt \
    "packages/fedpareto[parquet,sql,privacy]" packages/flower packages/serve

FROM python:3.12-slim
COPY --from=build /opt/fedpareto /opt/fedpareto
# Whoever it runs as need not be known here, and finds a place for what libraries keep.
ENV PATH=/opt/fedpareto/bin:$PATH HOME=/tmp USER=fedpareto PYTHONUNBUFFERED=1
USER 1000:1000
# Where the compose files of a deployment mount its folders.
HEALTHCHECK --interval=30s --timeout=20s --start-period=2m --retries=3 CMD ["sh", "-c", "\
    if [ -e /node/node.json ]; then fedpareto node status /node --alive; \
    elif [ -e /deployment/deployment.json ]; then fedpareto server status /deployment --alive; fi"]
STOPSIGNAL SIGTERM
CMD ["fedpareto", "--help"]
