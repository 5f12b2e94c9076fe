"""rules, which writes out what comes for Prometheus and Alertmanager."""

import pytest

from tallystick.metrics.shipped import FILES, shipped
from tests.cli.conftest import Shell

pytestmark = pytest.mark.server


def test_rules_are_written_out_whole(shell: Shell) -> None:
    done = shell.run("rules", "--to", str(shell.folder / "out"))
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_text() for path in (shell.folder / "out").iterdir()} == shipped()
    assert len(done.stdout.splitlines()) == len(FILES)
    assert shell.run("rules", "--to", str(shell.folder / "out")).returncode == 0


def test_rules_are_written_for_a_site(shell: Shell) -> None:
    words = ["--runbooks", "https://wiki.corp/t", "--receiver", "pager=https://page.corp/?a=b"]
    assert shell.run("rules", "--to", str(shell.folder), *words).returncode == 0
    assert (
        "https://wiki.corp/t/Watchdog" in (shell.folder / "tallystick.machinery.yaml").read_text()
    )
    assert '"https://page.corp/?a=b"' in (shell.folder / "alertmanager.yaml").read_text()


def test_rules_do_not_overwrite_what_somebody_changed(shell: Shell) -> None:
    mine = shell.folder / "alertmanager.yaml"
    mine.write_text("mine")
    told = shell.refused("rules", "--to", str(shell.folder))
    assert "alertmanager.yaml with other content" in told
    assert mine.read_text() == "mine"
    assert not (shell.folder / "tallystick.rules.yaml").exists()
    assert shell.run("rules", "--to", str(shell.folder), "--force").returncode == 0
    assert mine.read_text() == shipped()["alertmanager.yaml"]


@pytest.mark.parametrize("given", ["pager", "beeper=http://x", "=http://x"])
def test_a_receiver_that_there_is_not_is_refused_by_name(shell: Shell, given: str) -> None:
    told = shell.refused("rules", "--to", str(shell.folder / "out"), "--receiver", given)
    assert "pager, tickets, second-channel, dead-mans-switch" in told
    assert not (shell.folder / "out").exists()


def test_a_folder_that_cannot_be_made_is_a_clear_error(shell: Shell) -> None:
    (shell.folder / "file").touch()
    told = shell.refused("rules", "--to", str(shell.folder / "file"))
    assert "folder that can be written to" in told
