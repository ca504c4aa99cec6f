"""Three brokers started by one command, stopped one at a time by process id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

START_TIMEOUT_S = 120.0
SETTLE_TIMEOUT_S = 120.0
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "300"}


class ThreeBrokers:
    """`ottla start --brokers 3` in a separate directory."""

    def __init__(self, folder: Path, **settings: str) -> None:
        """`settings` apply to all brokers, with `_` for `.` in their names."""
        self._folder = folder
        ready = folder / "ready.json"
        self._log = (folder / "cluster.log").open("wb")
        command = ["-m", "ottla", "start", "--brokers", "3", "--port", "0"]
        command += ["--data-dir", str(folder / "data"), "--ready-file", str(ready)]
        named = {name.replace("_", "."): value for name, value in settings.items()}
        for name, value in {**SETTINGS, **named}.items():
            command += ["--set", f"{name}={value}"]
        self._process = subprocess.Popen(
            [sys.executable, *command], stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True
        )
        self.until(ready.exists, "three brokers are ready", START_TIMEOUT_S)
        self.bootstrap_servers = str(json.loads(ready.read_text())["bootstrap_servers"])

    def log(self) -> str:
        """Returns the log of supervisor and brokers."""
        return (self._folder / "cluster.log").read_text(errors="replace")

    def until(self, condition: Callable[[], object], what: str, timeout_s: float = SETTLE_TIMEOUT_S) -> None:
        """Wait for `condition`."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError(f"not within {timeout_s:g} s: {what}\n{self.log()[-4000:]}")
            time.sleep(0.1)

    def pid(self, node_id: int) -> int | None:
        """Returns the process id of one broker, the supervisor's child with its config; None if it is not running."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for child in children:
            try:
                arguments = Path(f"/proc/{child}/cmdline").read_bytes()
            except FileNotFoundError:  # it exited a moment ago
                continue
            if f"broker-{node_id}.properties".encode() in arguments:
                return int(child)
        return None

    def end(self, node_id: int, number: signal.Signals) -> None:
        """Stop one broker and wait until its successor reports that it is in every ISR again."""
        ended = self.pid(node_id)
        assert ended is not None, f"broker {node_id} has no process"
        os.kill(ended, number)
        self.until(lambda: self.pid(node_id) not in (None, ended), f"broker {node_id} is started again")
        self.until(lambda: self._in_sync(node_id), f"broker {node_id} is in sync again")

    def know(self, topic: str) -> bool:
        """Returns whether each broker serves, knows the topic, and reports all replicas of all partitions in sync."""
        return all(self._in_sync(node_id, topic) for node_id in range(1, self.bootstrap_servers.count(",") + 2))

    def _in_sync(self, node_id: int, topic: str = "") -> bool:
        """Returns whether the broker serves, knows `topic`, and reports all replicas of all partitions in sync."""
        address = self.bootstrap_servers.split(",")[node_id - 1]
        try:
            metadata = AdminClient({"bootstrap.servers": address}).list_topics(timeout=2)
        except KafkaException:
            return False
        partitions = [each for known in metadata.topics.values() for each in known.partitions.values()]
        if topic and topic not in metadata.topics:
            return False
        return all(sorted(each.isrs) == sorted(each.replicas) for each in partitions)

    def close(self) -> None:
        """Stop all brokers; the supervisor's exit code reports success."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(60)
        self._log.close()
        assert code == 0, self.log()[-4000:]
