"""From boards to the committed JSON."""

import json
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana.build.action_type import action_type
from deploy.grafana.build.house import build
from deploy.grafana.build.overview import overview

FOLDER = Path(__file__).parents[3] / "tallystick" / "metrics" / "dashboards"


def texts() -> dict[str, str]:
    """The text of each dashboard's file, by name."""
    found = {}
    for board in (overview(), action_type()):
        made = json.loads(json.dumps(build(board), cls=JSONEncoder))
        found[f"{board.uid}.json"] = json.dumps(_plain(made), indent=2, ensure_ascii=False) + "\n"
    return found


def _plain(made: dict[str, Any]) -> dict[str, Any]:
    """The same in the form of Grafana's published types, from which the builders differ: `auto`
    belongs to interval variables alone, and the query of an annotation stands in its target."""
    for variable in made["templating"]["list"]:
        for name in ("auto", "auto_min", "auto_count"):
            variable.pop(name, None)
    for annotation in made["annotations"]["list"]:
        annotation["target"] = {"refId": "Annotation", "expr": annotation.pop("expr")}
    return made


def write() -> list[Path]:
    """Write the files that differ; their paths."""
    FOLDER.mkdir(exist_ok=True)
    changed = []
    for name, text in texts().items():
        path = FOLDER / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            changed.append(path)
    return changed
