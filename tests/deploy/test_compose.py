"""compose.yaml and the Dockerfile, as far as they can be judged without an engine.

Compose itself reads the file (it knows the format, conditions and references); what it does not
care about is asked here of every service, so that none can be added without it.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tallystick import Settings
from tallystick.approvals import load_keyring, load_signer
from tallystick.metrics.shipped import DASHBOARDS, RECEIVERS, RULES
from tests.docs.pages import DOCS, blocks, code_spans, firsts, rows, sections
from tests.metrics.tools import run

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()
OURS = "tallystick:0.1.0"

SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "compose.yaml").read_text())[
    "services"
]
LASTING = sorted(name for name, one in SERVICES.items() if one["restart"] != "no")
ONCE = sorted(SERVICES.keys() - set(LASTING))
SECRETS = {"redis-secret", "grafana-secret", "approver-keys", "worker-keys"}

each_service = pytest.mark.parametrize("name", sorted(SERVICES))
each_lasting_service = pytest.mark.parametrize("name", LASTING)


def config(home: Path, *more: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What Compose makes of the file, with these variables set and none of the caller's.

    There is a wheel with Compose for Linux on x86-64; elsewhere yours is used, if you have it.
    """
    program = shutil.which("docker-compose", path=f"{BIN}:{os.environ['PATH']}") or ""
    if not program:
        unproved = "docker-compose is missing, so compose.yaml is unproved"
        pytest.fail(unproved) if os.environ.get("CI") else pytest.skip(unproved)
    plain = {"PATH": os.environ["PATH"], "HOME": str(home)}
    return subprocess.run(
        [program, "--profile", "*", *more, "config", "--format", "json"],
        cwd=ROOT,
        env=plain | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@functools.cache
def resolved(**variables: str) -> Any:
    done = config(ROOT, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def mounts(name: str) -> dict[str, dict[str, Any]]:
    """The mounts of a service by where they are seen, as Compose resolves them."""
    found = resolved()["services"][name].get("volumes", [])
    return {mount["target"]: mount for mount in found}


# --- Compose -------------------------------------------------------------------------------------


def test_compose_accepts_the_file_and_warns_of_nothing() -> None:
    assert set(resolved()["services"]) == set(SERVICES)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ({"services": {"worker": {"depends_on": {"nobody": None}}}}, "nobody"),
        ({"services": {"worker": {"colour": "red"}}}, "colour"),
        ({"services": {"worker": {"volumes": ["nowhere:/x"]}}}, "nowhere"),
        ({"services": {"worker": {"depends_on": {"redis": {"condition": "happy"}}}}}, "condition"),
    ],
)
def test_compose_would_see_a_mistake(fault: dict[str, Any], told: str, tmp_path: Path) -> None:
    """The check above is worth what this shows."""
    (tmp_path / "fault.yaml").write_text(yaml.safe_dump(fault))
    done = config(tmp_path, "--file", "compose.yaml", "--file", str(tmp_path / "fault.yaml"))
    assert done.returncode != 0
    assert told in done.stderr


def test_what_a_reader_may_set_is_set() -> None:
    found = resolved(
        TALLYSTICK_ACTIONS="acme",
        ACTIONS_DIR="./examples/bank",
        PROMETHEUS_PORT="1",
        ALERTMANAGER_PORT="2",
        GRAFANA_PORT="3",
    )["services"]
    assert found["worker"]["environment"]["TALLYSTICK_ACTIONS"] == "acme,tallystick.canary"
    ports = {name: one["ports"][0]["published"] for name, one in found.items() if "ports" in one}
    assert ports == {"prometheus": "1", "alertmanager": "2", "grafana": "3"}
    for name in ("worker", "exporter", "desk"):
        [mount] = [one for one in found[name]["volumes"] if one["target"] == "/srv/actions"]
        assert mount["source"] == str(ROOT / "examples" / "bank")


# --- every service -------------------------------------------------------------------------------


@each_service
def test_a_service_runs_as_somebody_who_is_not_root(name: str) -> None:
    user, _, group = SERVICES[name]["user"].partition(":")
    assert int(user) > 0
    assert int(group) > 0 or name == "grafana"  # whose image gives its files to the group 0


@each_service
def test_a_service_can_gain_nothing_and_write_nowhere_by_default(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert not {"privileged", "cap_add", "pid", "ipc", "devices"} & service.keys()


@each_service
def test_a_service_has_limits_of_processor_memory_and_processes(name: str) -> None:
    limits = SERVICES[name]["deploy"]["resources"]["limits"]
    assert set(limits) == {"cpus", "memory", "pids"}
    assert 0 < float(limits["cpus"]) <= 2
    assert re.fullmatch(r"[0-9]+m", limits["memory"])
    assert 16 <= limits["pids"] <= 256


@each_service
def test_a_tmpfs_has_a_size(name: str) -> None:
    for tmpfs in SERVICES[name].get("tmpfs", []):
        assert re.search(r"[:,]size=[0-9]+m(,|$)", tmpfs), tmpfs


@each_service
def test_a_service_cannot_fill_the_disk_with_its_log(name: str) -> None:
    logging = SERVICES[name]["logging"]
    assert logging == {"driver": "json-file", "options": {"max-size": "10m", "max-file": "3"}}


@each_service
def test_an_image_is_named_by_an_exact_version(name: str) -> None:
    _, _, tag = SERVICES[name]["image"].partition(":")
    assert re.fullmatch(r"v?[0-9]+\.[0-9]+\.[0-9]+(-[a-z]+)?", tag)


def test_our_image_is_built_once() -> None:
    """Two builds of one tag at a time get in each other's way."""
    assert [name for name, one in SERVICES.items() if "build" in one] == ["secrets"]
    assert SERVICES["secrets"]["image"] == OURS
    assert sum(one["image"] == OURS for one in SERVICES.values()) == 8


@each_lasting_service
def test_a_lasting_service_says_whether_it_is_well_and_comes_back(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"].keys() == {
        "test",
        "interval",
        "timeout",
        "retries",
        "start_period",
    }
    assert "profiles" not in service


def test_what_runs_once_is_either_the_start_or_for_people() -> None:
    assert ONCE == ["demo", "desk", "rules", "secrets"]
    assert {name: SERVICES[name].get("profiles") for name in ONCE} == {
        "rules": None,
        "secrets": None,
        "desk": ["tools"],
        "demo": ["demo"],
    }


@each_service
def test_a_service_waits_for_what_it_needs_to_be_well_and_not_only_started(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        once = other in {"secrets", "rules"}
        wanted = "service_completed_successfully" if once else "service_healthy"
        assert how == {"condition": wanted}


@each_service
def test_ports_are_open_to_this_machine_alone(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert port.startswith("127.0.0.1:")


# --- who sees what -------------------------------------------------------------------------------


@each_service
def test_what_a_service_is_given_to_read_it_cannot_write(name: str) -> None:
    for target, mount in mounts(name).items():
        given = mount["type"] == "bind" or mount["source"] in SECRETS
        if given and name != "secrets":
            assert mount.get("read_only") is True, target


def who_sees_what() -> dict[str, set[str]]:
    """The services that each secret is mounted into, but for the one that makes them."""
    return {
        secret: {
            name
            for name in SERVICES.keys() - {"secrets"}
            if secret in {mount["source"] for mount in mounts(name).values()}
        }
        for secret in SECRETS
    }


def test_a_secret_is_seen_by_those_who_need_it_and_by_nobody_else() -> None:
    assert who_sees_what() == {
        "redis-secret": {"redis", "worker", "exporter", "canary", "desk", "demo"},
        "grafana-secret": {"grafana"},
        "approver-keys": {"canary", "desk", "demo"},
        "worker-keys": {"worker", "exporter"},
    }


@each_service
def test_no_secret_stands_in_an_environment_or_a_command(name: str) -> None:
    service = resolved()["services"][name]
    for variable, value in service.get("environment", {}).items():
        if re.search("PASSWORD|SECRET|TOKEN", variable):
            assert variable.endswith("_FILE")
            assert value.startswith("/secrets/")
    assert "@" not in json.dumps(service.get("command")).replace("tallystick@", "")


def test_redis_is_reached_on_a_network_without_a_way_out_and_by_its_clients_alone() -> None:
    assert resolved()["networks"]["store"]["internal"] is True
    inside = {
        name for name, one in resolved()["services"].items() if "store" in one.get("networks", {})
    }
    assert inside == {"redis", "worker", "exporter", "canary", "desk", "demo"}
    assert list(resolved()["services"]["redis"]["networks"]) == ["store"]


def test_every_file_that_is_mounted_is_in_the_repository() -> None:
    for name in SERVICES:
        for mount in mounts(name).values():
            if mount["type"] == "bind":
                assert Path(mount["source"]).exists(), mount["source"]


# --- what ours are told --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["worker", "exporter", "canary", "desk", "demo"])
def test_what_our_services_are_told_are_settings_that_exist(name: str) -> None:
    told = resolved()["services"][name]["environment"]
    assert {one.removeprefix("TALLYSTICK_").lower() for one in told} <= set(Settings.model_fields)
    assert told["TALLYSTICK_REDIS_URL"] == "redis://tallystick@redis:6379/0"


def test_nothing_is_waived_of_what_the_doctor_asks() -> None:
    for name in ("worker", "desk", "canary"):
        assert "TALLYSTICK_ALLOW_UNSAFE" not in resolved()["services"][name]["environment"]


def test_a_worker_is_given_the_time_to_finish_what_it_holds() -> None:
    settings = Settings.load()
    longest = settings.effect_deadline + settings.verify_deadline_seconds
    assert int(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) > longest


def test_a_full_redis_has_room_to_rewrite_its_file() -> None:
    conf = (ROOT / "deploy" / "redis" / "redis.conf").read_text()
    [most] = re.findall(r"^maxmemory ([0-9]+)mb$", conf, re.MULTILINE)
    limit = SERVICES["redis"]["deploy"]["resources"]["limits"]["memory"]
    assert 2 * int(most) <= int(limit.removesuffix("m"))


# --- the secrets ---------------------------------------------------------------------------------


def make_secrets(root: Path) -> str:
    for name in ("redis", "grafana", "approver", "worker"):
        (root / name).mkdir(exist_ok=True)
    script = ROOT / "deploy" / "secrets" / "make.py"
    return subprocess.run(
        [sys.executable, str(script), str(root)], capture_output=True, text=True, check=True
    ).stdout


def test_secrets_are_made_once_and_the_private_key_is_the_approvers_alone(tmp_path: Path) -> None:
    told = make_secrets(tmp_path)
    files = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.*")}
    modes = {
        str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert modes == {
        "redis/password": 0o444,
        "grafana/password": 0o444,
        "approver/approval.key": 0o600,
        "approver/trusted.json": 0o600,
        "worker/trusted.json": 0o644,
    }
    passwords = {(tmp_path / name / "password").read_text() for name in ("redis", "grafana")}
    assert len(passwords) == 2
    assert all(len(one.strip()) >= 32 and one.strip() not in told for one in passwords)
    signer = load_signer(tmp_path / "approver")
    assert signer is not None
    assert load_keyring(tmp_path / "worker").trusted == {signer.key_id: signer.public}
    assert make_secrets(tmp_path) == ""
    assert {
        path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*.*")
    } == files


# --- the image -----------------------------------------------------------------------------------


def test_the_image_is_built_in_two_stages_from_one_exact_python() -> None:
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", DOCKERFILE, re.MULTILINE)
    assert stages == [("python:${PYTHON}", "build"), ("python:${PYTHON}", "")]
    assert re.search(r"^ARG PYTHON=3\.\d+\.\d+-slim-\w+$", DOCKERFILE, re.MULTILINE)
    assert not re.search(r"^COPY (?!--from=build)", DOCKERFILE.split("\nFROM ")[2], re.MULTILINE)


def test_the_image_is_of_the_python_that_the_tests_run_on() -> None:
    if not os.environ.get("CI"):
        pytest.skip("in CI alone: elsewhere the tests run on the Python that is there")
    assert re.search(
        rf"^ARG PYTHON={sys.version_info[0]}\.{sys.version_info[1]}\.", DOCKERFILE, re.M
    )


def test_the_image_installs_what_the_lock_file_says() -> None:
    assert "--constraint requirements/dev.txt ." in DOCKERFILE


def test_the_image_is_nobody_special_says_its_health_and_is_told_to_stop_by_sigterm() -> None:
    last = {line.partition(" ")[0]: line for line in DOCKERFILE.splitlines() if line}
    assert last["USER"] == "USER 10001:10001"
    assert last["STOPSIGNAL"] == "STOPSIGNAL SIGTERM"
    assert last["HEALTHCHECK"].endswith('CMD ["tallystick", "alive"]')
    assert last["ENTRYPOINT"] == 'ENTRYPOINT ["tallystick"]'


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    command = [str(BIN / "hadolint"), str(ROOT / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_only_what_the_image_needs_is_sent_to_the_builder() -> None:
    """Secrets and caches cannot get into an image whose builder never sees them."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for word in line.split()[:-1]
    }
    assert {rule[1:] for rule in rules if rule.startswith("!")} == copied


def test_the_version_of_the_image_is_the_version_of_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{OURS.partition(":")[2]}"' in text


# --- the monitoring ------------------------------------------------------------------------------


def write_rules(folder: Path) -> dict[str, str]:
    """What the service `rules` writes, by the command that compose.yaml gives it."""
    words = [
        word.replace("/etc/tallystick", str(folder))
        for word in resolved()["services"]["rules"]["command"]
    ]
    subprocess.run([sys.executable, "-m", "tallystick", *words], check=True, capture_output=True)
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_prometheus_and_alertmanager_accept_what_they_are_given(tmp_path: Path) -> None:
    written = write_rules(tmp_path)
    config = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    assert "/etc/tallystick/tallystick.*.yaml" in config
    (tmp_path / "prometheus.yml").write_text(config.replace("/etc/tallystick", str(tmp_path)))
    said = run("promtool", "check", "config", "prometheus.yml", cwd=tmp_path)
    assert f"{len(RULES)} rule files found" in said
    assert run("amtool", "check-config", "alertmanager.yaml", cwd=tmp_path)
    assert written.keys() >= {*RULES, *DASHBOARDS, "alertmanager.yaml"}


def test_pages_lead_to_the_pager_and_the_dashboard_of_this_stack(tmp_path: Path) -> None:
    written = write_rules(tmp_path)
    receivers = yaml.safe_load(written["alertmanager.yaml"])["receivers"]
    urls = [hook["url"] for one in receivers for hook in one["webhook_configs"]]
    assert sorted(urls) == sorted(f"http://pager:8080/{name}" for name in RECEIVERS)
    assert "dashboard_url: http://localhost:3000/d/tallystick\n" in written["tallystick.rules.yaml"]


def test_the_receivers_of_a_site_take_the_place_of_ours() -> None:
    given = {f"{name.upper().replace('-', '_')}_URL": f"https://{name}.corp/" for name in RECEIVERS}
    command = resolved(**given)["services"]["rules"]["command"]
    for name in RECEIVERS:
        assert f"--receiver={name}=https://{name}.corp/" in command


def test_prometheus_scrapes_every_service_that_has_metrics() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = {
        job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]
    }
    assert targets == {
        "tallystick": ["exporter:9464"],
        "prometheus": ["localhost:9090"],
        "alertmanager": ["alertmanager:9093"],
    }


# --- the page about it ---------------------------------------------------------------------------

PAGE = DOCS / "howto" / "run-with-compose.md"


def test_the_page_tells_of_every_service_every_variable_and_who_sees_which_secret() -> None:
    told = sections(PAGE)
    assert firsts(told["The services"]) == list(SERVICES)
    text = (ROOT / "compose.yaml").read_text()
    assert set(firsts(told["Make it yours"])) == set(re.findall(r"\$\{([A-Z_]+)", text))
    keys = rows(told["Keys and passwords"])
    seen = {code_spans(row[0])[0]: set(row[2].split(", ")) for row in keys}
    assert seen == who_sees_what()


def test_the_override_of_the_page_puts_a_folder_in_place_of_a_volume(tmp_path: Path) -> None:
    [(_, override)] = blocks(PAGE, "yaml")
    (tmp_path / "override.yaml").write_text(override)
    done = config(tmp_path, "--file", "compose.yaml", "--file", str(tmp_path / "override.yaml"))
    assert done.returncode == 0, done.stderr
    volume = json.loads(done.stdout)["volumes"]["worker-keys"]
    assert volume["driver_opts"]["device"] == "/etc/tallystick/worker-keys"
