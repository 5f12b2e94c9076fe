"""Put what the commands print into the runbooks: `python -m tests.runbooks.fill [NAME …]`.

It plays the scene on a server of its own, runs each of our commands, and replaces the sample below
it; samples that are cut with `…`, and those of other programs, are left to their author.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

from tallystick.jobs.embedded import EmbeddedServer
from tests.runbooks.pages import PAGES, Step, perform, scene_of, steps
from tests.runbooks.scene import MODULE, Scene


def main() -> None:
    """Fill the named pages, or all."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer.join(Path(folder)) as server:
        os.environ |= {"TALLYSTICK_REDIS_URL": server.url, "TALLYSTICK_DATA_DIR": folder}
        os.environ["TALLYSTICK_ACTIONS"] = MODULE
        for number, name in enumerate(sys.argv[1:] or PAGES):
            os.environ["TALLYSTICK_NAMESPACE"] = f"page-{number}"
            with scene_of(name, server.url, f"page-{number}", Path(folder)) as scene:
                fill(name, scene)


def fill(name: str, scene: Scene) -> None:
    """Run the page's commands, and write what they print below them."""
    text = PAGES[name].read_text("utf-8")
    for step in steps(PAGES[name]):
        if step.ours and not step.goes_on and "…" not in step.sample:
            status, printed = perform(step, name, scene)
            print(f"{name}: {step.command} -> {status}")
            text = replaced(text, step, printed)
    PAGES[name].write_text(text, "utf-8")


def replaced(text: str, step: Step, printed: str) -> str:
    """The page with another sample below a command."""
    lines = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
    block = re.compile(rf"^\$ {re.escape(step.command)}\n(?:(?!\$ |```).*\n)*", re.MULTILINE)
    return block.sub(lambda _: f"$ {step.command}\n{lines}", text, count=1)


if __name__ == "__main__":
    main()
