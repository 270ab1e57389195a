# The server: docker build -t xds-server .
#
# Inside the container it must listen on all addresses, so it refuses to start until it has TLS and credentials, and says
# which settings are missing. On a network of its own (docker-compose.yml) `serve --insecure` lets everyone in instead.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
WORKDIR /build
COPY requirements.run.lock pyproject.toml hatch_build.py README.md LICENSE ./
COPY xds xds
# pip takes nothing but the files whose hashes the lock has.
RUN python -m venv --without-pip /opt/xds \
 && pip --python /opt/xds install --no-cache-dir --require-hashes -r requirements.run.lock \
 && pip --python /opt/xds install --no-cache-dir --no-deps .

FROM python:${PYTHON}-slim
COPY --from=build /opt/xds /opt/xds
RUN useradd --system --uid 10001 --home-dir /data xds \
 && install --directory --owner xds --group xds --mode 0700 /data
ENV PATH=/opt/xds/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    XDS_SERVER__GRPC__HOST=0.0.0.0 \
    XDS_SERVER__HTTP__HOST=0.0.0.0 \
    XDS_STORE__DATA=/data
USER xds
WORKDIR /data
VOLUME /data
EXPOSE 18000 18080
# /readyz needs no token. With TLS on the HTTP port it needs XDS_ADDR=https://... and XDS_CACERT.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["xds", "check", "--ready"]
ENTRYPOINT ["xds"]
CMD ["serve"]
