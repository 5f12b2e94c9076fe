"""The two types: one that must be committed, and one that must be rolled back.

Their target is a folder of small files in the data folder of the worker that runs them, so they
touch nothing of anybody else's. Each beat is a file of its own, absent before on every host.
"""

import contextlib
import json
import os
import re
import time
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, StringConstraints

from tallystick.core.errors import NotApplied
from tallystick.jobs.action import Action, Context
from tallystick.jobs.settings import Settings
from tallystick.metrics import counters
from tallystick.rollback import InBand
from tallystick.verifiers import Verdict

_KEPT_SECONDS = 3600
_NAME = re.compile(r"[0-9a-f]{16}")


class Canary(Action):
    """Writes a file of its own, reads it back, and is committed."""

    name = counters.CANARY
    protection = "keyed"
    rollback = InBand("remove")

    class Params(BaseModel):
        """Which beat it is."""

        beat: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]

    def observe(self, params: Any) -> Any:
        with contextlib.suppress(FileNotFoundError):
            return json.loads((_folder() / params.beat).read_text())
        return None

    def execute(self, params: Any, context: Context) -> Any:
        """Write the file, unless it was written under this key already."""
        folder = _folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _forget_old(folder)
        there = self.observe(params)
        if there is not None and there["key"] != context.idempotency_key:
            raise NotApplied("the beat belongs to another key")
        written = {"beat": self._written(params.beat), "key": context.idempotency_key}
        draft = folder / f"{params.beat}.{os.getpid()}"
        draft.write_text(json.dumps(written))
        draft.replace(folder / params.beat)
        return written

    def _written(self, beat: str) -> str:
        return beat

    def verify(self, params: Any, before: Any, now: Any, result: Any) -> Verdict:
        return Verdict.equal(expected=params.beat, observed=now["beat"] if now else None)

    def remove(self, params: Any, before: Any, result: Any, context: Context) -> None:
        """Undo: the file is gone, as it was before."""
        (_folder() / params.beat).unlink(missing_ok=True)


class Drill(Canary):
    """Lands wrong on purpose, is found out by its verification, and is rolled back."""

    name = counters.DRILL

    def _written(self, beat: str) -> str:
        return beat[::-1] + "!"


def _folder() -> Path:
    return Settings.load().data_dir / "canary"


def _forget_old(folder: Path) -> None:
    """Remove the files of beats that are long over."""
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if _NAME.match(path.name) and time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                path.unlink()
