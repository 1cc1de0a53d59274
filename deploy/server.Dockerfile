# One image for the front process and its workers: stepone-server starts stepone-worker from its own folder.
#   docker build -f deploy/server.Dockerfile -t stepone .
FROM debian:12 AS build
WORKDIR /src
COPY deploy/packages.txt deploy/packages.sh deploy/
RUN apt-get update && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(bash deploy/packages.sh build)
COPY . .
RUN cmake -S . -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DSTEPONE_BUILD_CLIENT=OFF -DSTEPONE_BUILD_TORCH=OFF -DSTEPONE_BUILD_TESTS=OFF && \
    cmake --build /build && \
    cmake --install /build --component python --strip --prefix /image

FROM debian:12-slim
COPY --from=build /src/deploy/packages.txt /src/deploy/packages.sh /tmp/deploy/
RUN apt-get update && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $(bash /tmp/deploy/packages.sh runtime) && \
    rm -rf /var/lib/apt/lists/* /tmp/deploy && \
    useradd --system --uid 10001 --home-dir /var/lib/stepone --create-home stepone
COPY --from=build /image/stepone/bin/ /usr/lib/stepone/
COPY deploy/config/prod.toml /etc/stepone/server.toml
# A library that the runtime packages lack shall fail here, not in production.
RUN ! ldd /usr/lib/stepone/stepone-server /usr/lib/stepone/stepone-worker | grep "not found"
USER stepone
VOLUME /var/lib/stepone
EXPOSE 7461 9461
ENTRYPOINT ["/usr/lib/stepone/stepone-server", "--config", "/etc/stepone/server.toml"]
