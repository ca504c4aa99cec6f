"""Group members in separate processes: kafkajs, Java's console consumer and VerifiableConsumer.

Each reports its assignment and its records in its own format, with times of this machine's clock; the member's name is
its client id. The console consumer reports the assignment in its log.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

from group_history import History

STOP_S = 120.0
MS = 1_000_000
SESSION_MS = 6_000
REFUSED = (
    *("The coordinator is not aware of this member", "UnknownMemberIdException"),
    *("Specified group generation id is not valid", "IllegalGenerationException"),
    *(
        "stale member epoch",
        "StaleMemberEpochException",
        "fenced by the group coordinator",
        "FencedMemberEpochException",
    ),
    *("RebalanceInProgressException", "CommitFailedException"),
)
"""Names of `group_members.REFUSED` in other clients: errors after a rebalance or an expired session."""


class ProcessMember(threading.Thread):
    """Starts a command and parses its output: `start`, then `stop` by SIGTERM as an operator does."""

    def __init__(self, name: str, command: list[str], history: History, cwd: Path | None = None) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self.command = command
        self.cwd = cwd
        self.stopping = threading.Event()
        self.process: subprocess.Popen[str] | None = None
        self.errors: list[str] = []
        self.tolerated: tuple[str, ...] = REFUSED
        """Complaints with such words are none."""

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
        self.history.ended(self.name)

    def understand(self, line: str) -> None:
        """Parse one line of output."""
        raise NotImplementedError

    def complain(self, line: str) -> None:
        if not any(words in line for words in self.tolerated):
            self.errors.append(line)

    def owned(self) -> set[int]:
        """Returns the partitions that this member reported as assigned."""
        return self.history.owned().get(self.name, set())

    def stop(self) -> None:
        if self.process is None:
            raise RuntimeError("the process was not started")
        self.stopping.set()
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        finally:
            self.kill()
        self.join(STOP_S)
        assert not self.errors, f"{self.name}: {self.errors[:3]}"

    def kill(self) -> None:
        """Kill the process if it is still running."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class KafkaJsMember(ProcessMember):
    """kafkajs, by `client.mjs group`.

    A consumer that "crashes" reports the crash, leaves the group and restarts.
    """

    def __init__(
        self,
        name: str,
        home: Path,
        servers: str,
        topic: str,
        group: str,
        history: History,
        session_ms: int = SESSION_MS,
    ) -> None:
        command = ["node", "client.mjs", "group", servers, topic, group, name, str(session_ms)]
        super().__init__(name, command, history, home)

    def understand(self, line: str) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            self.complain(line)
            return
        if "at" not in event:
            if event.get("level") == "ERROR" and "rebalanc" not in line:
                self.complain(line)
            if event.get("message", "").startswith("[Consumer] Crash"):
                self.history.revoked(self.name, self.owned(), _nanoseconds(event["timestamp"]))
            return
        at = event["at"] * MS
        if "offset" in event:
            self.history.read(self.name, event["partition"], event["offset"], event["offset"] + 1, at)
        elif "assigned" in event:
            self.history.assigned(self.name, event["assigned"], at)
        else:
            self.history.revoked(self.name, event["revoked"], at)


class ConsoleMember(ProcessMember):
    """kafka-console-consumer that prints partitions and offsets, with a log (slf4j-simple, its date in milliseconds).

    One thread writes records and the log lines about rebalances, so their order is correct. Other threads also log,
    even in the middle of the line of a record, which then continues. The classic consumer logs when partitions are
    assigned and revoked. The consumer of the new protocol logs the start of a reconciliation (RECONCILING, with the
    changes on separate lines), and ACKNOWLEDGING at its end, just before it notifies the coordinator.
    """

    _ENDED_WHILE_IT_MOVED = ("Reconciliation failed.", "could not be completed before the consumer closed")
    """The new consumer logs an error when it is stopped during a rebalance; the second line contains the reason."""

    DATE_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSS"
    _RECORD = re.compile(r"Partition:(\d+)\tOffset:(\d+)\t\d+\n")
    _LOGGED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}) \[.*?\] ([A-Z]+) (.*)")
    _CHANGE = re.compile(r"\s+(Added|Revoked) partitions .*?:\s+\[(.*)\]")
    _INVOKED = re.compile(r".*ConsumerRebalanceListenerInvoker - .*\] (Adding|Revoke|Lost) .*?\[(.*)\]")

    def __init__(self, name: str, command: list[str], history: History) -> None:
        super().__init__(name, command, history)
        self.tolerated += self._ENDED_WHILE_IT_MOVED
        self._changes: dict[str, list[int]] = {}
        self._begun = ""
        self._level = "ERROR"

    def understand(self, line: str) -> None:
        record = self._RECORD.fullmatch(self._begun + line)
        if record:
            self._begun = ""
            partition, offset = map(int, record.groups())
            self.history.read(self.name, partition, offset, offset + 1)
            return
        change = self._CHANGE.match(line)
        if change:
            self._changes[change[1]] = _numbers(change[2])
            return
        logged = self._LOGGED.search(line)
        if logged is None:
            # Warnings with stack traces are logged too, for operations that the client retries.
            if "Exception" in line and self._level == "ERROR" and not line.startswith("\tat "):
                self.complain(line)
            return
        self._begun += line[: logged.start()]
        at, self._level, text = logged.groups()
        if self._level == "ERROR":
            self.complain(line)
        self._understand_log(text, _nanoseconds(at))

    def _understand_log(self, text: str, at: int) -> None:
        invoked = self._INVOKED.match(text)
        if invoked and invoked[1] == "Adding":
            self.history.assigned(self.name, _numbers(invoked[2]), at)
        elif invoked:
            self.history.revoked(self.name, _numbers(invoked[2]), at)
        elif "transitioned from RECONCILING to ACKNOWLEDGING" in text:
            self.history.revoked(self.name, self._changes.get("Revoked", ()), at)
            self.history.assigned(self.name, self._changes.get("Added", ()), at)
        elif "to FENCED" in text:
            self.history.revoked(self.name, self.owned(), at)


def _nanoseconds(date: str) -> int:
    """Parses a date with milliseconds in the given time zone, or in the local one."""
    return round(datetime.datetime.fromisoformat(date).timestamp() * 1000) * MS


def _numbers(partitions: str) -> list[int]:
    """Parses `topic-3, topic-4`."""
    return [int(each.rpartition("-")[2]) for each in partitions.split(", ") if each]


class VerifiableMember(ProcessMember):
    """kafka-verifiable-consumer, which reports all its actions with times."""

    def understand(self, line: str) -> None:
        try:
            event: dict[str, Any] = json.loads(line)
        except ValueError:
            if "Exception" in line:
                self.complain(line)
            return
        at = event["timestamp"] * MS
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
                self.history.revoked(self.name, self.owned(), at)
