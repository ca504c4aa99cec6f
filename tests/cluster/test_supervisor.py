"""`ottla start --brokers N`: a broker that can't come back for a while doesn't end the cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from ottla.app.ports import HOST

from .nodes import eventually

TIMEOUT_S = 60.0


def test_a_broker_that_fails_to_come_back_is_tried_again_until_it_does(tmp_path: Path) -> None:
    ready, log = tmp_path / "ready.json", tmp_path / "log"
    command = [sys.executable, "-m", "ottla", "start", "--brokers", "1", "--port", "0"]
    command += ["--data-dir", str(tmp_path / "data"), "--ready-file", str(ready)]
    with log.open("wb") as output:
        supervisor = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        eventually(ready.exists, "the broker is ready", TIMEOUT_S)
        [broker] = json.loads(ready.read_text())["brokers"]
        port = int(broker["bootstrap_servers"].rpartition(":")[2])
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            supervisor.send_signal(signal.SIGSTOP)  # until the port is taken
            os.kill(broker["pid"], signal.SIGKILL)
            eventually(lambda: takes(taken, port), "the port is free")
            supervisor.send_signal(signal.SIGCONT)
            eventually(lambda: log.read_text().count("exit code 2") > 1, "it failed twice to come back", TIMEOUT_S)
        eventually(lambda: serves(port), "it is back", TIMEOUT_S)
        supervisor.terminate()
        assert supervisor.wait(TIMEOUT_S) == 0, log.read_text()
    finally:
        supervisor.kill()
        supervisor.wait()


def takes(listening: socket.socket, port: int) -> bool:
    try:
        listening.bind((HOST, port))
    except OSError:
        return False
    listening.listen()
    return True


def serves(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), 1.0).close()
    except OSError:
        return False
    return True
