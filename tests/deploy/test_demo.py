"""The small programs of the stack: the shop, the pager, the health check of the canary."""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from deploy.demo.shop import Reprice, sign
from tallystick import State
from tallystick.testing import Bench

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = Reprice.name


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOP_DIR", str(tmp_path))
    return tmp_path


def repriced(bench: Bench, price: str, **params: object) -> State:
    id = bench.approved(NAME, {"sign": "apples", "price": price, **params})
    bench.run(id)
    return bench.state(id)


# --- the shop ------------------------------------------------------------------------------------


def test_a_price_that_is_painted_as_approved_is_committed() -> None:
    assert repriced(Bench(Reprice), "2.00") is State.COMMITTED
    assert sign("apples").read_text() == "2.00"


def test_a_price_that_is_painted_carelessly_is_put_back_and_a_person_is_called() -> None:
    bench = Bench(Reprice)
    repriced(bench, "2.00")
    assert repriced(bench, "3.00", careless=True) is State.ROLLED_BACK
    assert sign("apples").read_text() == "2.00"
    assert [found.state for found in bench.tally.list(attention=True)] == [State.ROLLED_BACK]


def test_a_sign_that_was_not_there_is_taken_away_again(shop: Path) -> None:
    assert repriced(Bench(Reprice), "3.00", careless=True) is State.ROLLED_BACK
    assert list(shop.iterdir()) == []


# --- the pager -----------------------------------------------------------------------------------

NOTIFICATION = {
    "receiver": "pager",
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "X", "severity": "critical", "action_type": "shop.reprice"},
            "annotations": {"summary": "It burns.", "runbook_url": "https://wiki/X"},
            "startsAt": "2031-07-04T20:01:29.208Z",
        }
    ],
}


@pytest.fixture
def pager() -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    """The pager on a free port, and its process, whose output is its log."""
    command = [sys.executable, str(DEPLOY / "pager" / "pager.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = re.findall(r"listens on port (\d+)", process.stdout.readline())[0]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            yield client, process
        process.kill()


def test_the_pager_says_what_it_got_and_shows_it(pager: Any) -> None:
    client, process = pager
    assert client.get("/healthz").status_code == 200
    assert client.post("/pager", json=NOTIFICATION).json() == {"taken": 1}
    said = process.stdout.readline()
    assert said == "FIRING critical X shop.reprice: It burns.  See https://wiki/X\n"
    [page] = client.get("/pages").json()
    assert (page["to"], page["path"], page["status"]) == ("pager", "/pager", "firing")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"receiver": 1, "alerts": [{}]}'])
def test_the_pager_refuses_what_is_no_notification_and_goes_on(pager: Any, body: bytes) -> None:
    client, _ = pager
    assert client.post("/pager", content=body).status_code == 400
    assert client.get("/pages").json() == []


# --- the canary's health check -------------------------------------------------------------------

METRIC = "tallystick_canary_last_committed_timestamp_seconds"


@pytest.mark.parametrize(
    ("text", "status"),
    [(f"{METRIC} 4e9\n", 0), (f"{METRIC} 1e9\n", 1), (f"{METRIC} 0\n", 1), ("other 4e9\n", 1)],
)
def test_the_canary_is_well_if_the_exporter_tells_of_one_lately(
    tmp_path: Path, text: str, status: int
) -> None:
    (tmp_path / "metrics").write_text(f"# HELP {METRIC} when\n{text}")
    source = (DEPLOY / "canary" / "healthy.py").read_text()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))) as http:
        thread = Thread(target=http.serve_forever, daemon=True)
        thread.start()
        there = source.replace("http://exporter:9464", f"http://127.0.0.1:{http.server_port}")
        done = subprocess.run(
            [sys.executable, "-c", there, "180"], capture_output=True, text=True, check=False
        )
        http.shutdown()
    thread.join(5)
    assert done.returncode == status, done.stderr
    assert done.stdout.startswith("the last canary was committed ")


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder."""

    def log_message(self, format: str, *args: object) -> None: ...
