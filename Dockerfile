# The bot in a container: docker build --tag replica-video-bot . (compose.yaml runs it)
FROM python:3.11-slim-bookworm AS build
WORKDIR /app
# With psycopg, 4 MB more, for a DATABASE_URL of PostgreSQL's.
COPY requirements-postgres.txt .
RUN python3 -m venv .venv \
    && .venv/bin/pip install --no-cache-dir --no-compile --disable-pip-version-check \
        --require-hashes --only-binary :all: --requirement requirements-postgres.txt \
    && .venv/bin/pip uninstall --quiet --yes pip setuptools \
    && rm requirements-postgres.txt
COPY manifest.yml .
COPY bot bot
# Compiled here, since nothing can be written there. By content: copies may have other times.
RUN .venv/bin/python -m compileall -q --invalidation-mode unchecked-hash .venv/lib bot

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="Replica videos in Slack" \
    org.opencontainers.image.description="A Slack bot that makes replica videos" \
    org.opencontainers.image.licenses="MIT"
# A number that compose.yaml and orchestrators can name. Only /data is ever written.
RUN groupadd --gid 10001 bot \
    && useradd --uid 10001 --gid bot --home-dir /data --no-create-home --shell /usr/sbin/nologin bot \
    && install --directory --owner bot --group bot --mode 700 /data
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/app/.venv/bin:$PATH \
    DATABASE_URL=sqlite:////data/bot.db \
    HOST=0.0.0.0 \
    PORT=3000
USER 10001:10001
EXPOSE 3000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-IS", "-c", "import http.client, os; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['PORT']), timeout=4); c.request('GET', '/healthz'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["python", "-m", "bot"]
CMD ["serve"]
