"""A stream into a topic under exactly-once, while driver, workers and broker are killed: readers of what is committed
get each row of the input once.

OTTLA_SINK_KILLS=50 makes it so many kills at random points, as `make exactly-once-stream` does.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.client.cluster import Cluster
from ottla.testing import Broker

from ..cluster.nodes import eventually
from .committed import read_committed

pytestmark = pytest.mark.pipeline

DRIVER = Path(__file__).with_name("sink_driver.py")
KILLS = int(os.environ.get("OTTLA_SINK_KILLS", "1"))
ROWS = 100
"""Of a file; three files are an epoch, each a task."""
WAIT_S = 600.0
"""Of a machine that has much else to do."""
STEPS_APART = 25
"""The most steps of tasks from one kill to the next: an epoch has nine."""


class Course:
    """A query over some files that is started again whenever it was killed, and its broker likewise."""

    def __init__(self, broker: Broker, folder: Path, epochs: int, deaths: list[dict[str, Any]]) -> None:
        self.broker = broker
        self._files = epochs * 3
        self._folder = folder
        self._scratch = folder / "scratch"
        for name in ("source", "graves", "scratch"):
            (folder / name).mkdir()
        self._settings = {
            "servers": broker.bootstrap_servers,
            "source": str(folder / "source"),
            "target": "target",
            "checkpoint": str(folder / "checkpoint"),
            "steps": str(folder / "steps"),
            "graves": str(folder / "graves"),
            "deaths": deaths,
        }
        (folder / "steps").touch()
        for number in range(self._files):
            rows = range(number * ROWS, (number + 1) * ROWS)
            path = folder / "source" / f"{number:05d}.txt"
            path.write_text("".join(f"{row}\n" for row in rows))
            os.utime(path, (number + 1, number + 1))  # the order in which the stream takes them
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.create_topic("target", 3)
        self.starts = 0
        self.killed = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def deaths(self) -> int:
        """Planned ones that happened."""
        return len(list((self._folder / "graves").iterdir()))

    def start(self) -> None:
        with (self._folder / "errors").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(DRIVER), json.dumps(self._settings)],
                stdout=errors,
                stderr=errors,
                env=os.environ | {"TMPDIR": str(self._scratch)},
                start_new_session=True,
            )
        self.starts += 1

    def run(self, kills: int) -> None:
        """Until all files are written, with so many kills at random points on the way."""
        self.start()
        for _ in range(kills):
            self.progress(random.randrange(STEPS_APART))
            self._kill_somebody()
        self.finish()

    def finish(self) -> None:
        """Wait until all files are written."""
        self._until(lambda: self._ended() == 0, "the query ended")

    def _kill_somebody(self) -> None:
        victim = random.choice(["driver", "worker", "broker"])
        if victim == "broker":
            self.broker.kill()
            self.broker.start()
        elif victim == "driver" and self._process is not None:
            self._process.kill()
            self._process.wait()
            self.start()
        else:
            steps = self._steps()
            with suppress(ProcessLookupError, IndexError):  # it may have gone with its driver
                os.kill(int(steps[-1].split()[0]), signal.SIGKILL)
        self.killed += 1

    def _steps(self) -> list[str]:
        return (self._folder / "steps").read_text().splitlines()

    def progress(self, steps: int) -> None:
        """Wait until the tasks told so many steps more, or there are no more."""
        goal = len(self._steps()) + steps
        self._until(lambda: len(self._steps()) >= goal or self._ended() == 0, f"{steps} steps of tasks")

    def _ended(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        def looked_after() -> bool:
            if self._ended() not in (None, 0):
                assert self.starts < 20 + 3 * KILLS, (self._folder / "errors").read_text()[-4000:]
                self.start()
            return condition()

        eventually(looked_after, what, WAIT_S)

    def check(self) -> None:
        """Each row once."""
        count = self._files * ROWS
        messages = read_committed(self.broker.bootstrap_servers, "target", count)
        found = Counter(int(message.value()) for message in messages)
        assert {row: times for row, times in found.items() if times > 1} == {}
        assert sorted(found) == list(range(count))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def begin(tmp_path: Path, ottla_broker_factory: Callable[..., Broker]) -> Iterator[Callable[..., Course]]:
    with ExitStack() as stack:

        def begin(epochs: int, deaths: list[dict[str, Any]]) -> Course:
            course = Course(ottla_broker_factory(), tmp_path, epochs, deaths)
            stack.callback(course.close)
            return course

        yield begin


@pytest.mark.timeout(700)
def test_each_step_of_a_task_may_be_the_last(begin: Callable[..., Course]) -> None:
    """Of driver and worker; where a task was committed and its epoch was not, the next attempt passes over it."""
    steps = ("sent", "offsets", "committed")
    deaths = [
        {"epoch": number, "step": step, "victim": victim}
        for number, (victim, step) in enumerate((victim, step) for victim in ("driver", "worker") for step in steps)
    ]
    course = begin(len(deaths), deaths)
    course.run(0)
    assert course.deaths == len(deaths)
    assert course.starts == 1 + len(steps)
    course.check()


@pytest.mark.timeout(700)
def test_the_broker_may_go_at_any_step(begin: Callable[..., Course]) -> None:
    course = begin(4, [])
    course.start()
    for _ in range(2):
        course.progress(4)
        course.broker.kill()
        course.broker.start()
    course.finish()
    course.check()


@pytest.mark.timeout(700 + 120 * KILLS)
def test_through_kills(begin: Callable[..., Course]) -> None:
    course = begin(KILLS * STEPS_APART // 9, [])
    course.run(KILLS)
    course.check()
    print(f"{course.killed} kills, {course.starts} starts")
