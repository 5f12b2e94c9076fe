"""Ways to reach Redis: TCP with TLS, Sentinel with a failover, a second namespace."""

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallystick.core.errors import StoreUnavailable
from tallystick.jobs.connection import connect
from tallystick.jobs.embedded import server_program
from tallystick.jobs.service import Tallystick
from tallystick.jobs.settings import Settings
from tallystick.jobs.store import Store
from tests.server import actions
from tests.server.conftest import ACTIONS, Server, Site, eventually

pytestmark = pytest.mark.server

TLS = Path(__file__).parent / "tls"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def tls_front(server: Server) -> Iterator[int]:
    """A TLS listener in front of a server's unix socket; its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    listener = socket.create_server(("127.0.0.1", 0))
    open_sockets: list[socket.socket] = [listener]

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for side in (source, sink):
            side.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                raw, _ = listener.accept()
                try:
                    front = context.wrap_socket(raw, server_side=True)
                except (ssl.SSLError, OSError):
                    raw.close()
                    continue
                back = socket.socket(socket.AF_UNIX)
                back.connect(server.url.removeprefix("unix://"))
                open_sockets.extend([front, back])
                for pair in ((front, back), (back, front)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        for one in open_sockets:
            one.close()
        acceptor.join(5)


def run_one(site: Site, url: str, item: str) -> str:
    """Propose, approve and run one action through this URL; the state it ends in."""
    settings = Settings.load(
        redis_url=url, data_dir=site.folder / "data", actions=(ACTIONS,), lease_seconds=2
    )
    with Tallystick.from_settings(settings) as tally:
        params = {"item": item, "value": "new"}
        found = tally.propose("item.readable", params, key=item, by="producer")
        tally.approve(found.id, by="approver")
        command = [sys.executable, "-m", "tallystick", "worker", "--burst"]
        env = site.env | {"TALLYSTICK_REDIS_URL": url}
        ended = subprocess.run(command, env=env, timeout=60, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return str(tally.wait(found.id, timeout=20).state)


def test_a_tls_url_with_a_ca_is_spoken_to(site: Site) -> None:
    with tls_front(site.server) as port:
        url = f"rediss://localhost:{port}/0?ssl_ca_certs={TLS / 'cert.pem'}"
        assert run_one(site, url, "tls") == "committed"
    assert actions.effects("tls") == 1


def test_a_server_whose_certificate_is_not_trusted_is_refused(site: Site) -> None:
    with tls_front(site.server) as port:
        store = Store.connect(f"rediss://localhost:{port}/0", "tallystick", timeout=2)
        with pytest.raises(StoreUnavailable, match=r"certificate|CERTIFICATE"):
            store.ping()
        store.close()


@pytest.fixture
def sentinel(tmp_path: Path) -> Iterator[tuple[str, list[Server]]]:
    """A primary, a replica and one sentinel on loopback; the URL, and the two servers."""
    ports = [free_port() for _ in range(3)]
    nodes = []
    for name, port in zip(("one", "two"), ports, strict=False):
        folder = tmp_path / name
        folder.mkdir()
        options = {"port": str(port), "bind": "127.0.0.1"}
        if name == "two":
            options["replicaof"] = f"127.0.0.1 {ports[0]}"
        nodes.append(Server(folder, options))
        nodes[-1].start()
    config = tmp_path / "sentinel.conf"
    config.write_text(
        f"port {ports[2]}\nbind 127.0.0.1\ndir {tmp_path}\n"
        f"sentinel monitor tally 127.0.0.1 {ports[0]} 1\n"
        "sentinel down-after-milliseconds tally 3000\nsentinel failover-timeout tally 2000\n"
    )
    command = [server_program(), str(config), "--sentinel"]
    watcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    url = f"redis+sentinel://127.0.0.1:{ports[2]}/tally/0"

    def knows_the_replica() -> bool:
        with contextlib.suppress(Exception):
            client = connect(f"redis://127.0.0.1:{ports[2]}", timeout=2, retries=False, decode=True)
            with contextlib.closing(client):
                return bool(client.sentinel_slaves("tally"))
        return False

    eventually(knows_the_replica, "the sentinel knows the replica")
    yield url, nodes
    watcher.kill()
    watcher.wait(10)
    for node in nodes:
        node.stop()


def test_a_sentinel_url_is_followed_through_a_failover(
    site: Site, sentinel: tuple[str, list[Server]]
) -> None:
    url, (primary, _) = sentinel
    assert run_one(site, url, "before") == "committed"
    primary.stop()
    store = Store.connect(url, "tallystick", timeout=2)

    def writable() -> bool:
        with contextlib.suppress(Exception):
            store.bump("probe")
            return True
        return False

    eventually(writable, "the replica is promoted", seconds=30)
    store.close()
    assert run_one(site, url, "after") == "committed"
    assert (actions.effects("before"), actions.effects("after")) == (1, 1)


def test_namespaces_on_one_server_share_nothing(site: Site) -> None:
    id = site.approved("item.readable", "ours")
    other = Settings.load(
        redis_url=site.server.url,
        data_dir=site.folder / "data",
        actions=(ACTIONS,),
        namespace="other",
    )
    with Tallystick.from_settings(other) as tally:
        assert tally.list() == []
        params = {"item": "theirs", "value": "new"}
        theirs = tally.propose("item.readable", params, key="ours", by="producer")
        tally.approve(theirs.id, by="approver")
        site.worker("--burst").wait(30)
        assert site.tally.get(id).state == "committed"
        assert tally.get(theirs.id).state == "approved"
