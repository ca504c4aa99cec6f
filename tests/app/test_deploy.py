"""The files in `deploy/`: the systemd unit and how a broker notifies systemd, the settings of the containers."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.app.main import cli
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.properties import load_properties

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "ottla@.service"
CONTAINER = DEPLOY / "container"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze of systemd")
def test_unit_is_valid_and_well_confined(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/ottla/bin/ottla", sys.executable))
    for arguments in (["verify", "--man=no"], ["security", "--offline=true", "--threshold=20"]):
        done = subprocess.run(["systemd-analyze", *arguments, unit], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("brokers", [(), ("--brokers", "3")], ids=["one", "three"])
def test_start_and_stop_notify_systemd(ottla, tmp_path, monkeypatch, brokers) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        started = ottla.start(*brokers)
        assert manager.recv(100) == b"READY=1"
        assert started.stop(signal.SIGTERM) == 0
        assert manager.recv(100) == b"STOPPING=1"


def test_missing_notify_socket_is_only_logged(ottla, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "missing"))
    started = ottla.start()
    assert started.stop(signal.SIGTERM) == 0
    assert "systemd was not notified of READY=1 through NOTIFY_SOCKET" in started.log.read_text()


def check_command(arguments: list[str]) -> None:
    """Parse the options of a command without running it."""
    command: Any = cli
    while hasattr(command, "get_command"):
        name, *arguments = arguments
        command = command.get_command(None, name)
    command.make_context(command.name, arguments)


def test_container_commands_are_valid() -> None:
    text = (CONTAINER / "Dockerfile").read_text().replace("\\\n", "")
    commands = {name: json.loads(words) for name, words in re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])", text, re.M)}
    (health,) = (json.loads(words) for words in re.findall(r"HEALTHCHECK .*?CMD (\[.*\])", text))
    console = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]["console"]
    for _, *arguments in (commands["ENTRYPOINT"] + commands["CMD"], health, console["entrypoint"] + console["command"]):
        check_command(arguments)


@pytest.mark.parametrize("is_new", [True, False])
def test_composed_nodes_have_valid_settings(tmp_path, is_new) -> None:
    """The script of each node runs with a stub in place of ottla that stores the settings and its arguments.

    Only for a new cluster is an empty volume formatted as that of an initial voter.
    """
    services = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]
    stub = tmp_path / "ottla"
    stub.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/arguments\ncp "$3" {tmp_path}/settings\n')
    stub.chmod(0o755)
    script = tmp_path / "start-node.sh"
    script.write_text((CONTAINER / "start-node.sh").read_text().replace("/tmp/", f"{tmp_path}/"))
    for node_id in (1, 2, 3):
        environment = services[f"broker{node_id}"]["environment"]
        assert environment["NEW_CLUSTER"] == "${NEW_CLUSTER:-false}"
        environment["NEW_CLUSTER"] = str(is_new).lower()
        subprocess.run(["/bin/sh", script], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"} | environment, check=True)
        config = BrokerConfig.parse(load_properties(str(tmp_path / "settings")))[0]
        assert config.node_id == node_id
        assert config.clustered
        voter = environment["INITIAL_CONTROLLERS"].split(",")[node_id - 1]
        assert voter.startswith(f"{node_id}@{environment['HOST']}:9093:")
    formats = [line for line in (tmp_path / "arguments").read_text().splitlines() if line.startswith("format")]
    assert len(formats) == 3
    for line in formats:
        assert ("--initial-controllers=1@broker1" in line) is is_new
        assert ("--no-initial-controllers" in line) is not is_new
        check_command(line.split())


def run_pod(files: dict[str, str], volume: Path) -> BrokerConfig:
    """Run the script of the pod with the name of the volume; returns the settings of its `ottla start`."""
    settings, arguments = volume / "server.properties", volume / "arguments"
    places = {"/var/lib/ottla": str(volume), "/etc/ottla/server.properties": str(settings)}
    for name, text in files.items():
        for inside, outside in places.items():
            text = text.replace(inside, outside)
        (volume / name).write_text(text)
    stub = volume / "ottla"
    stub.write_text(
        f'#!/bin/sh\n[ "$1" != start ] || exec printf "%s\\n" "$@" > {arguments}\nexec {sys.executable} -m ottla "$@"\n'
    )
    stub.chmod(0o755)
    environment = os.environ | {"HOSTNAME": volume.name, "PATH": f"{volume}:{os.environ['PATH']}"}
    subprocess.run(["/bin/sh", volume / "start.sh"], env=environment, check=True, capture_output=True)
    words = arguments.read_text().splitlines()
    given = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--set")
    return BrokerConfig.parse(load_properties(str(settings)) | given)[0]


HELM = shutil.which("helm") or str(DEPLOY.parent / ".cache" / "helm" / "helm")


@pytest.mark.skipif(not Path(HELM).exists(), reason="needs helm")
class TestChart:
    """The Helm chart, rendered by helm."""

    def render(self, *values: str) -> dict[str, Any]:
        """The manifests by kind, those of services by kind and name."""
        arguments = [word for value in values for word in ("--set-json", value)]
        command = [HELM, "template", "logs", str(DEPLOY / "helm" / "ottla"), "--namespace", "data", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        manifests = list(yaml.safe_load_all(done.stdout))
        return {f"{each['kind']}/{each['metadata']['name']}": each for each in manifests}

    def test_lint_reports_no_problem(self) -> None:
        command = [HELM, "lint", "--strict", str(DEPLOY / "helm" / "ottla"), "--set", "podMonitor.enabled=true"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @pytest.mark.parametrize("value", ["controllers=2", "replica=3", 'storage.size="big"', "config.a=1"])
    def test_invalid_value_is_refused(self, value) -> None:
        with pytest.raises(subprocess.CalledProcessError) as refused:
            self.render(value)
        assert value.partition("=")[0].rpartition(".")[2] in refused.value.stderr

    @pytest.mark.parametrize("new_cluster", ["true", "false"])
    def test_pods_format_their_volumes(self, tmp_path, new_cluster) -> None:
        """The script runs with the real `ottla format`, and with a stub for `ottla start`."""
        chart = self.render("replicas=4", f"newCluster={new_cluster}", 'config={"log.retention.hours":"24"}')
        files = chart["ConfigMap/logs"]["data"]
        formatted = {}
        for pod in (2, 3):
            volume = tmp_path / f"logs-{pod}"
            (volume / "lost+found").mkdir(parents=True)  # as on a new file system
            config = run_pod(files, volume)
            assert config.node_id == pod
            assert config.get_int("log.retention.hours") == 24
            meta = load_properties(str(volume / "meta.properties"))
            formatted[pod] = (meta["cluster.id"], meta["directory.id"])
        assert formatted[2][0] == formatted[3][0]
        address = r"(\d)@logs-\1\.logs-nodes\.data\.svc\.cluster\.local:9093:([\w-]{22})"
        voters = {int(node): directory for node, directory in re.findall(address, files["start.sh"])}
        assert sorted(voters) == ([0, 1, 2] if new_cluster == "true" else [])
        assert (voters.get(2) == formatted[2][1]) == (new_cluster == "true")
