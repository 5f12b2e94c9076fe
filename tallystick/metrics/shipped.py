"""The files that come with the package: rules, service levels, and where alerts go."""

from collections.abc import Mapping
from importlib.resources import files

RULES = ("tallystick.rules.yaml", "tallystick.machinery.yaml", "tallystick.slo.yaml")
"""For Prometheus, under `rule_files`."""


FILES = (*RULES, "prometheus.yaml", "alertmanager.yaml")

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
    folder = files("tallystick.metrics").joinpath("rules")
    replaced = {
        f"{_SITE}runbooks/": _folder(runbooks),
        f"{_SITE}dashboards/": _folder(dashboards),
    }
    for name, url in (receivers or {}).items():
        replaced[f"https://{name}.{_SITE.removeprefix('https://')}"] = url
    texts = {name: folder.joinpath(name).read_text("utf-8") for name in FILES}
    for example, ours in replaced.items():
        if ours:
            texts = {name: text.replace(example, ours) for name, text in texts.items()}
    return texts


def _folder(url: str) -> str:
    return url.rstrip("/") + "/" if url else ""
