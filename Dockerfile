# The one image of Tallystick: worker, exporter and command line. Built on the version of Python
# that the tests run on. compose.yaml shows how to run it; docs/howto/run-with-compose.md says why.

ARG PYTHON=3.11.14-slim-bookworm

FROM python:${PYTHON} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
RUN python -m venv /opt/tallystick
COPY requirements/dev.txt requirements/
COPY pyproject.toml README.md LICENSE ./
COPY tallystick tallystick
RUN /opt/tallystick/bin/python -m pip install --constraint requirements/dev.txt .

FROM python:${PYTHON}
# A fixed number, so that volumes and key files can be given to it. The folders exist in the image
# because a new volume takes its owner from the folder that it covers.
RUN groupadd --gid 10001 tallystick \
 && useradd --uid 10001 --gid tallystick --home-dir /var/lib/tallystick --no-create-home \
      --shell /usr/sbin/nologin tallystick \
 && install -d -o tallystick -g tallystick -m 0700 /var/lib/tallystick \
      /secrets/approver /secrets/worker \
 && install -d -o tallystick -g tallystick -m 0755 /secrets /secrets/redis /secrets/grafana \
      /etc/tallystick /srv/shop /srv/actions
COPY --from=build /opt/tallystick /opt/tallystick
ENV PATH=/opt/tallystick/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TALLYSTICK_DATA_DIR=/var/lib/tallystick
WORKDIR /srv/actions
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=10s --start-period=10s --retries=3 CMD ["tallystick", "alive"]
ENTRYPOINT ["tallystick"]
CMD ["worker"]
