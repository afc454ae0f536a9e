# The command line, with the board and the Prometheus exporter:
#
#   docker build -t heartline .
#   docker run --rm -e HEARTLINE_URL=redis://… heartline status
#   docker run -p 9187:9187 -e HEARTLINE_URL=redis://… -e HEARTLINE_TOKEN=… heartline metrics --listen 0.0.0.0:9187
#   docker run -p 9188:9188 -e HEARTLINE_URL=redis://… -e HEARTLINE_TOKEN=… heartline board --listen 0.0.0.0:9188
FROM rust:1-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --locked --release -p heartline-cli

FROM debian:bookworm-slim
COPY --from=build /src/target/release/heartline /usr/local/bin/heartline
USER 65534:65534
ENTRYPOINT ["heartline"]
CMD ["--help"]
