"""The files that come with the package: rules, service levels, where alerts go, dashboards."""

from collections.abc import Mapping
from importlib.resources import files

RULES = ("tallystick.rules.yaml", "tallystick.machinery.yaml", "tallystick.slo.yaml")
"""For Prometheus, under `rule_files`."""

DASHBOARDS = ("tallystick.json", "tallystick-action-type.json")
"""For Grafana, each named by its uid."""

FILES = (*RULES, "prometheus.yaml", "alertmanager.yaml", *DASHBOARDS)

RECEIVERS = ("pager", "tickets", "second-channel", "dead-mans-switch")
"""The receivers of alertmanager.yaml, each a webhook."""

_SITE = "https://tallystick.example/"


def shipped(
    *, runbooks: str = "", dashboards: str = "", receivers: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Every file by its name, as text.

    `runbooks` and `dashboards` replace the beginning of those addresses (what comes before the
    name of the alert or of the dashboard), `receivers` the address of each receiver that it names.
    """
    replaced = {
        f"{_SITE}runbooks/": _folder(runbooks),
        f"{_SITE}dashboards/": _folder(dashboards),
    }
    for name, url in (receivers or {}).items():
        replaced[f"https://{name}.{_SITE.removeprefix('https://')}"] = url
    texts = {name: _text(name) for name in FILES}
    for example, ours in replaced.items():
        if ours:
            texts = {name: text.replace(example, ours) for name, text in texts.items()}
    return texts


def _text(name: str) -> str:
    room = "dashboards" if name in DASHBOARDS else "rules"
    return files("tallystick.metrics").joinpath(room, name).read_text("utf-8")


def _folder(url: str) -> str:
    return url.rstrip("/") + "/" if url else ""
