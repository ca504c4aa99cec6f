"""Members of a group in processes of their own: kafkajs, Java's console consumer and VerifiableConsumer."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

from group_history import History

STOP_S = 60.0


class ProcessMember(threading.Thread):
    """Starts a command and understands its lines; `start`, then `stop` by SIGTERM as an operator does."""

    def __init__(self, name: str, command: list[str], history: History, cwd: Path | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.command = command
        self.cwd = cwd
        self.stopping = threading.Event()
        self.process: subprocess.Popen[str] | None = None
        self.errors: list[str] = []

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.cwd
        )
        super().start()

    def run(self) -> None:
        if self.process is None or self.process.stdout is None:
            raise RuntimeError("the process was not started")
        for line in self.process.stdout:
            self.understand(line)

    def understand(self, line: str) -> None:
        """One line of output."""
        raise NotImplementedError

    def stop(self) -> None:
        if self.process is None:
            raise RuntimeError("the process was not started")
        self.stopping.set()
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        finally:
            self.process.kill()
            self.process.wait()
        self.join(STOP_S)
        assert not self.errors, f"{self.name}: {self.errors[:3]}"


class KafkaJsMember(ProcessMember):
    """kafkajs; it goes on with a batch while it rejoins, so what it owns is not judged."""

    def understand(self, line: str) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            self.errors.append(line)
            return
        if "offset" in event:
            self.history.read_elsewhere(self.name, event["partition"], event["offset"], event["offset"] + 1)
        elif "assigned" not in event and event.get("level") == "ERROR" and "rebalanc" not in line:
            self.errors.append(line)


class ConsoleMember(ProcessMember):
    """kafka-console-consumer that prints partitions and offsets; it does not tell what it owns."""

    _RECORD = re.compile(r"Partition:(\d+)\tOffset:(\d+)\t")

    def understand(self, line: str) -> None:
        match = self._RECORD.match(line)
        if match:
            partition, offset = map(int, match.groups())
            self.history.read_elsewhere(self.name, partition, offset, offset + 1)
        elif "ERROR" in line or "Exception" in line:
            self.errors.append(line)


class VerifiableMember(ProcessMember):
    """kafka-verifiable-consumer: everything that it does, with times."""

    def understand(self, line: str) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            if "Exception" in line:
                self.errors.append(line)
            return
        at = event["timestamp"] * 1_000_000
        partitions = event.get("partitions", [])
        match event["name"]:
            case "partitions_assigned":
                self.history.assigned(self.name, [each["partition"] for each in partitions], at)
            case "partitions_revoked" | "partitions_lost":
                self.history.revoked(self.name, [each["partition"] for each in partitions], at)
            case "records_consumed":
                for each in partitions:
                    self.history.read(self.name, each["partition"], each["minOffset"], each["maxOffset"] + 1, at)
            case "shutdown_complete":
                self.history.revoked(self.name, self.history.owned().get(self.name, ()), at)
