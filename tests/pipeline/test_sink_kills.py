"""A stream into a topic under exactly-once, from files and from another topic, while driver, workers and broker are
killed: consumers of committed records get each row of the input once, those of a key in their order.

OTTLA_SINK_KILLS=50 sets the number of kills at random points, also with files as the input, and kills the driver at
every step; OTTLA_SINK_SEED sets their order, as in `make exactly-once-stream`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pytest

pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.client.admin.cluster import Cluster
from ottla.testing import Broker

from ..cluster.nodes import eventually
from .committed import read_committed
from .deaths import graves, make_folder, steps
from .feeder import Feeder

pytestmark = pytest.mark.pipeline

DRIVER = Path(__file__).with_name("sink_driver.py")
IS_LONG = "OTTLA_SINK_KILLS" in os.environ
KILLS = int(os.environ.get("OTTLA_SINK_KILLS", "1"))
SEED = int(os.environ.get("OTTLA_SINK_SEED", "1"))
ROWS = 100
"""Rows of a file; three files are an epoch, each file a task."""
WAIT_S = 600.0
"""Seconds until the next step, on a busy machine."""
EPOCH_STEPS = 9
"""Steps of the three tasks of an epoch: the maximum between two kills."""
PAUSE_S = 0.2
"""Pause between two transactions of the source's producer: a rate that a constantly killed query can follow."""


Read = Callable[[int], Sequence[Any]]
"""Reads at least that many messages of the target."""


class Input(Protocol):
    """Input of the query."""

    settings: dict[str, str]
    grows: bool
    """True if more input arrives while the query runs."""

    def finish(self) -> None:
        """Stop producing input."""

    def check(self, read: Read) -> None:
        """Check that the committed messages of the target equal the input."""


class Files:
    """Numbers, one file after another."""

    grows = False

    def __init__(self, folder: Path, epochs: int) -> None:
        source = folder / "source"
        source.mkdir()
        self.settings = {"files": str(source)}
        self._rows = epochs * 3 * ROWS
        for number in range(epochs * 3):
            rows = range(number * ROWS, (number + 1) * ROWS)
            path = source / f"{number:05d}.txt"
            path.write_text("".join(f"{row}\n" for row in rows))
            os.utime(path, (number + 1, number + 1))  # the order in which the stream takes them

    def finish(self) -> None:
        """All files existed before."""

    def check(self, read: Read) -> None:
        """Check that each row exists once."""
        found = Counter(int(message.value()) for message in read(self._rows))
        assert {row: times for row, times in found.items() if times > 1} == {}
        assert sorted(found) == list(range(self._rows))


class Topic:
    """Transactions, some of them aborted, that continue while the query runs."""

    def __init__(self, servers: str) -> None:
        self.settings = {"topic": "source"}
        self._servers = servers
        with Cluster(servers) as cluster:
            cluster.topics.create("source", 3)
        self._feeder = Feeder(servers, "source", SEED, PAUSE_S)
        self._feeder.start()
        self.grows = True

    def finish(self) -> None:
        """Stop writing."""
        self._feeder.finish()
        self.grows = False

    def check(self, read: Read) -> None:
        """Check that each committed record exists once, those of a key in order, and no aborted one."""
        source = read_committed(self._servers, "source")
        values = {message.value() for message in source}
        assert self._feeder.committed <= values
        assert self._feeder.aborted.isdisjoint(values)
        assert _by_key(read(len(source))) == _by_key(source)


def _by_key(messages: Sequence[Any]) -> dict[bytes, list[bytes]]:
    found = defaultdict(list)
    for message in messages:
        found[message.key()].append(message.value())
    return dict(found)


class Course:
    """A query that is restarted after each kill, and its broker likewise."""

    def __init__(self, broker: Broker, folder: Path, source: Input, deaths: list[dict[str, str]]) -> None:
        self.broker = broker
        self._folder = folder
        self._source = source
        self._random = random.Random(SEED)
        self._scratch = folder / "scratch"
        self._scratch.mkdir()
        self._death_folder = folder / "deaths"
        make_folder(self._death_folder)
        self._settings = {
            **source.settings,
            "servers": broker.bootstrap_servers,
            "target": "target",
            "checkpoint": str(folder / "checkpoint"),
            "folder": str(self._death_folder),
            "deaths": deaths,
        }
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create("target", 3)
        self.starts = 0
        self._failures = 0
        self.kills: Counter[str] = Counter()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def deaths(self) -> int:
        """Planned deaths that happened."""
        return len(graves(self._death_folder))

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
        """Run until all of the input is written, with that many kills at random points."""
        self.start()
        for _ in range(kills):
            self.progress(self._random.randrange(EPOCH_STEPS))
            self._kill_random_victim()
        self.finish()

    def finish(self) -> None:
        """Wait until all of the input is written."""
        came = self._source.grows
        self._source.finish()
        self._until(lambda: self._ended() == 0, "the query ended")
        if came:  # after the query read the ends
            self.start()
            self._until(lambda: self._ended() == 0, "the query ended")

    def _kill_random_victim(self) -> None:
        victim = self._random.choice(["driver", "worker", "broker"])
        if victim == "broker":
            self.broker.kill()
            self.broker.start()
        elif victim == "driver" and self._process is not None:
            self._process.kill()
            self._process.wait()
            self.start()
        else:
            seen_steps = steps(self._death_folder)
            with suppress(ProcessLookupError, IndexError):  # it may have died with its driver
                os.kill(int(seen_steps[-1].split()[0]), signal.SIGKILL)
        self.kills[victim] += 1

    def progress(self, count: int) -> None:
        """Wait until the tasks recorded this many more steps, or the query has ended."""
        goal = len(steps(self._death_folder)) + count
        self._until(lambda: len(steps(self._death_folder)) >= goal or self._ended() == 0, f"{count} steps of tasks")

    def _ended(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, as long as any task makes progress."""

        def looked_after() -> bool:
            if self._ended() not in (None, 0):
                self._failures += 1
                assert self._failures < 20 + 3 * KILLS, (self._folder / "errors").read_text()[-4000:]
                self.start()
            elif self._ended() == 0 and self._source.grows:
                self.start()
            return condition()

        def progressed(seen: int) -> bool:
            return looked_after() or len(steps(self._death_folder)) > seen

        while not looked_after():
            eventually(partial(progressed, len(steps(self._death_folder))), f"{what}, or a step", WAIT_S)

    def check(self) -> None:
        """Check that the target equals the input."""
        self._source.check(partial(read_committed, self.broker.bootstrap_servers, "target"))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@pytest.fixture
def begin(tmp_path: Path, ottla_broker_factory: Callable[..., Broker]) -> Iterator[Callable[..., Course]]:
    with ExitStack() as stack:

        def begin(epochs: int, deaths: list[dict[str, str]], *, topic: bool = False) -> Course:
            broker = ottla_broker_factory(start_timeout_s=WAIT_S)
            source: Input = Topic(broker.bootstrap_servers) if topic else Files(tmp_path, epochs)
            course = Course(broker, tmp_path, source, deaths)
            stack.callback(course.close)
            return course

        yield begin


@pytest.mark.promise("P10")
@pytest.mark.timeout(700)
def test_kill_at_each_step_of_a_task(begin: Callable[..., Course]) -> None:
    """Of driver and worker; if a task was committed but its epoch was not, the next attempt skips it.

    Before a commit, a killed driver leaves the same state as a killed worker, and costs another start of Spark.
    """
    lasts = ("sent", "offsets", "committed")
    driver_lasts = lasts if IS_LONG else lasts[-1:]
    victims = [("driver", step) for step in driver_lasts] + [("worker", step) for step in lasts]
    deaths = [{"step": f"{epoch} {step}", "victim": victim} for epoch, (victim, step) in enumerate(victims)]
    course = begin(len(deaths), deaths)
    course.run(0)
    assert course.deaths == len(deaths)
    assert course.starts == 1 + len(driver_lasts)
    course.check()


@pytest.mark.timeout(700)
def test_broker_killed_at_any_step(begin: Callable[..., Course]) -> None:
    course = begin(4, [])
    course.start()
    for _ in range(2):
        course.progress(4)
        course.broker.kill()
        course.broker.start()
    course.finish()
    course.check()


@pytest.mark.timeout(700 + 120 * KILLS)
@pytest.mark.parametrize("source", ["files", "topic"] if IS_LONG else ["topic"])
def test_through_kills(begin: Callable[..., Course], source: str) -> None:
    course = begin(KILLS, [], topic=source == "topic")
    course.run(KILLS)
    course.check()
    killed = ", ".join(f"{count} of {victim}" for victim, count in sorted(course.kills.items()))
    print(f"{source}, seed {SEED}: kills {killed}; {course.starts} starts")
