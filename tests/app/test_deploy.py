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


def test_container_commands_are_valid() -> None:
    text = (CONTAINER / "Dockerfile").read_text().replace("\\\n", "")
    commands = {name: json.loads(words) for name, words in re.findall(r"^(ENTRYPOINT|CMD) (\[.*\])", text, re.M)}
    (health,) = (json.loads(words) for words in re.findall(r"HEALTHCHECK .*?CMD (\[.*\])", text))
    for _, *arguments in (commands["ENTRYPOINT"] + commands["CMD"], health):
        command: Any = cli
        while hasattr(command, "get_command"):
            name, *arguments = arguments
            command = command.get_command(None, name)
        command.make_context(command.name, arguments)


def test_composed_nodes_have_valid_settings(tmp_path) -> None:
    """The script of each node runs with a stub in place of ottla that stores the settings and its arguments."""
    services = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]
    stub = tmp_path / "ottla"
    stub.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/arguments\ncp "$3" {tmp_path}/settings\n')
    stub.chmod(0o755)
    script = tmp_path / "start-node.sh"
    script.write_text((CONTAINER / "start-node.sh").read_text().replace("/tmp/", f"{tmp_path}/"))
    for node_id in (1, 2, 3):
        environment = services[f"broker{node_id}"]["environment"]
        subprocess.run(["/bin/sh", script], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"} | environment, check=True)
        config = BrokerConfig.parse(load_properties(str(tmp_path / "settings")))[0]
        assert config.node_id == node_id
        assert config.clustered
        voter = environment["INITIAL_CONTROLLERS"].split(",")[node_id - 1]
        assert voter.startswith(f"{node_id}@{environment['HOST']}:9093:")
    formats = [line for line in (tmp_path / "arguments").read_text().splitlines() if line.startswith("format")]
    assert len(formats) == 3
