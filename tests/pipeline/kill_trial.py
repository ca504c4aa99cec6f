"""Kill trial of a job: a producer feeds a topic, and random processes are killed at random steps while the job
runs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.pipeline.load.leases import EXPIRY_S, LEASE_DIRECTORY
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.snapshot.staging import STAGED_DIRECTORY
from ottla.testing import Broker

from ..cluster.nodes import eventually
from .committed import read_committed
from .deaths import STEP_NUMBERS, graves, make_folder, steps
from .feeder import Feeder
from .trial_jobs import JOBS, TOPIC, Job, Row

DRIVER = Path(__file__).with_name("driver.py")
WAIT_S = 600.0
"""Seconds until the next step, on a busy machine."""
ROUND_RECORDS = 1000
"""Records that are written during a round, regardless of its duration: four batches of a stream."""
ROUND_RUNS = 3
"""Maximum number of runs: the one of the round, and two concurrent ones."""
COMMIT_STEPS = {"delta": 1, "iceberg": 7, "parquet": 4}
"""Number of Python steps in a commit of a table."""
REFUSALS = (
    "in the meantime",
    "no Delta table",
    "no Iceberg table",
    "no table found",
    "runs in another process",
    "was fenced",
)
"""Errors of a command that met another one, or ran before the table existed."""
UPKEEP = ("compact", "vacuum")
UPKEEP_STEPS = 6
RACE, BESIDE, UNHARMED, BURIED, AGED = 0.3, 0.6, 0.3, 0.5, 0.7
"""Probabilities: of a second loader, of a concurrent compaction or vacuum, that either is not killed, that the workers
of a dead driver are killed with it, and that the leases of dead runs are aged."""
LOSS, BROKER_LOSS = 0.25, 0.4
"""Probabilities that a run also loses a worker at a numbered step, and its broker meanwhile: neither costs a start of
Spark."""


class Kill(NamedTuple):
    """Victim and step of a kill; `step` is one of `driver.py`, or "" for any moment."""

    victim: str
    step: str = ""


def planned_kills(job: Job, kind: str) -> list[Kill]:
    """One kill at each step of a run."""
    kills = [Kill("driver", step) for step in job.steps]
    kills += [Kill("worker", step) for step in job.worker_steps]
    if job.has_table:
        kills += [Kill("driver", f"{number} committing") for number in range(COMMIT_STEPS[kind])]
        kills.append(Kill("driver", "log committing"))
    return kills


RANDOM_KILLS = [Kill(victim) for victim in ("driver", "worker", "java", "all", "broker") for _ in range(3)]


class Run:
    """One command of `ottla pipeline` in a process session of its own, so that its processes can be found."""

    def __init__(
        self, folder: Path, arguments: Sequence[str], table: Path, deaths: Sequence[Kill], scratch: Path
    ) -> None:
        make_folder(folder)
        self.folder = folder
        self.command = arguments[0]
        self.harmed = any(death.victim == "driver" for death in deaths)
        """True if it was or will be killed; a worker that dies at a step is replaced, and the run succeeds."""
        self._planned = deaths
        planned_deaths = [death._asdict() for death in deaths]
        settings = json.dumps({"folder": str(folder), "table": str(table), "deaths": planned_deaths})
        command = [sys.executable, str(DRIVER), settings, *arguments]
        (folder / "command").write_text("\n".join(command))
        with (folder / "output").open("wb") as output, (folder / "errors").open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env=os.environ | {"TMPDIR": str(scratch)},
                start_new_session=True,
            )

    def ended(self) -> bool:
        return self.process.poll() is not None

    def fallen(self) -> list[Kill]:
        """The planned deaths that happened. A process that is killed in a commit leaves no grave."""
        dug, died = graves(self.folder), self.process.poll() == -signal.SIGKILL
        return [one for one in self._planned if one.step in dug or (died and one.step.endswith(" committing"))]

    def errors(self) -> str:
        return (self.folder / "errors").read_text(errors="replace")

    def reached(self, step: str, times: int = 1) -> bool:
        return sum(line.partition(" ")[2] == step for line in steps(self.folder)) >= times

    def members(self, kind: str = "") -> list[int]:
        """Living processes of the session: all, those of `java`, or the Python workers that run tasks."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with suppress(OSError):
                state, parent, _, session = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:4]
                if int(session) != self.process.pid or state == "Z":
                    continue
                if kind == "java" and not os.readlink(entry / "exe").endswith("java"):
                    continue
                if kind == "worker" and not _is_worker(entry, parent):
                    continue
                found.append(int(entry.name))
        return found

    def kill(self, pids: Sequence[int]) -> bool:
        """Kill a victim; True if there was one."""
        self.harmed |= bool(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)


def living(runs: Sequence[Run]) -> bool:
    """True if any process of their sessions is left."""
    sessions = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                state, _, _, session = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:4]
                sessions |= {int(session)} if state != "Z" else set()
    return not sessions.isdisjoint(run.process.pid for run in runs)


def _is_worker(entry: Path, parent: str) -> bool:
    """True for a Python worker of Spark, which its daemon forked, and for one of the local engine."""
    is_local = b"ottla.pipeline.local.worker" in (entry / "cmdline").read_bytes()
    return is_local or (_is_daemon(entry) and _is_daemon(Path("/proc", parent)))


def _is_daemon(entry: Path) -> bool:
    return b"pyspark.daemon" in (entry / "cmdline").read_bytes()


class Trial:
    """One topic, one job, and kills without end; `folder` contains the output of all processes."""

    def __init__(self, broker: Broker, folder: Path, job: str, kind: str, seed: int) -> None:
        self._broker = broker
        self._folder = folder
        self._kind = kind
        self._random = random.Random(seed)
        self._scratch = folder / "scratch"
        self._scratch.mkdir()
        self._job = JOBS[job](broker.bootstrap_servers, folder, kind, self._random)
        self._table = self._job.table
        with Cluster(broker.bootstrap_servers) as cluster:
            cluster.topics.create(TOPIC, 3)
        self._feeder = Feeder(broker.bootstrap_servers, TOPIC, seed, most=ROUND_RECORDS)
        self._seen = 0
        self._runs: list[Run] = []
        self.kills: Counter[Kill] = Counter()
        self.ends: Counter[str] = Counter()

    def run(self, kills: int, minutes: float, first: Sequence[str] = ()) -> None:
        """Run that many kills, or as many as the time allows, then compare; kills named `first` always happen."""
        self._feeder.start()
        for victim in first:
            self._round(Kill(victim))
        deck: list[Kill] = []
        until = time.monotonic() + minutes * 60
        while self.kills.total() < kills and time.monotonic() < until:
            if not deck:
                deck = [*self._planned_kills(), *RANDOM_KILLS]
                self._random.shuffle(deck)
            self._round(deck.pop())
            self._require_single(self._job.rows())  # finds a violation in the round that caused it
        self._settle()
        self._check()

    def report(self) -> str:
        """A table of the kills by victim and step, and of the commands' outcomes."""
        killed = [
            (str(count), kill.victim, kill.step or "any moment") for kill, count in sorted(self.kills.items()) if count
        ]
        ended = [(str(count), *name.split(" ", 1)) for name, count in sorted(self.ends.items())]
        rows = [("kills", "of", "at"), *killed, ("runs", "of", "ended"), *ended]
        return "\n".join(f"{count:>6}  {what:8}  {how}" for count, what, how in rows)

    def _planned_kills(self) -> list[Kill]:
        return planned_kills(self._job, self._kind)

    # A round

    def _round(self, kill: Kill) -> None:
        """One run, one kill, and the concurrent commands."""
        self._wait_for_news()
        chance = self._random.random
        runs = [first := self._start(self._job.command, self._deaths(kill))]
        if self._job.has_table and chance() < BESIDE:
            steps = [*(f"{number} committing" for number in range(UPKEEP_STEPS)), "log committing"]
            deaths = [] if chance() < UNHARMED else [Kill("driver", self._random.choice(steps))]
            self._until(lambda: first.reached(self._job.under_way) or first.ended(), "a run that is under way")
            runs.append(self._start(self._random.choice(UPKEEP), deaths))
        if chance() < RACE:
            deaths = [] if chance() < UNHARMED else self._deaths(self._random.choice(self._planned_kills()))
            runs.append(self._start(self._job.command, deaths))
        struck = ["broker"] if kill.victim != "broker" and chance() < BROKER_LOSS else []
        struck += [] if kill.step else [kill.victim]
        for victim in struck:
            self.kills[Kill(victim)] += self._strike(victim, first)
        self._until(lambda: all(run.ended() for run in runs), "all commands of a round end")
        for run in runs:
            for fallen in run.fallen():
                victim = run.command if run.command in UPKEEP else fallen.victim
                self.kills[Kill(victim, fallen.step.rstrip(" 0123456789"))] += 1
            self._judge(run, broker_killed="broker" in struck)
        self._bury(runs)

    def _deaths(self, kill: Kill) -> list[Kill]:
        """Deaths of a run: the kill if it has a step, at any occurrence, and workers before it."""
        steps = (f"{step} {number}" for step in self._job.worker_steps for number in range(STEP_NUMBERS))
        lost = [Kill("worker", step) for step in steps if self._random.random() < LOSS]
        if kill.victim == "driver" and kill.step in self._job.steps:
            kill = Kill("driver", f"{kill.step} {self._random.randrange(self._job.turns)}")
        return [kill, *lost] if kill.step else lost

    def _strike(self, victim: str, run: Run) -> bool:
        """Kill a random process at a random step of a run; False if no process is left."""
        step, times = self._random.choice(self._job.steps), self._random.randint(1, self._job.turns)
        self._until(lambda: run.reached(step, times) or run.ended(), f"a run that has {step} {times} times")
        time.sleep(self._random.expovariate(20))  # a kill comes at any moment
        if run.ended():
            return False
        if victim == "broker":
            self._broker.kill()
            self._broker.start()
            return True
        if victim == "driver":
            return run.kill([run.process.pid])
        if victim == "all":
            return run.kill(run.members())
        found = run.members(victim)
        return run.kill([self._random.choice(found)] if found else [])

    def _start(self, command: str, deaths: Sequence[Kill] = (), retention_hours: str = "") -> Run:
        arguments = [command, "--json"]
        arguments += self._job.arguments() if command == self._job.command else ["--table", str(self._table)]
        if command == "vacuum":
            arguments += ["--retention-hours", retention_hours or self._random.choice(["0", "168"])]
        run = Run(self._folder / f"run-{len(self._runs):04d}", arguments, self._table, deaths, self._scratch)
        self._runs.append(run)
        return run

    def _judge(self, run: Run, *, broker_killed: bool) -> None:
        """An unharmed run must succeed, or fail with one of REFUSALS."""
        words = run.errors()
        last = words.strip().splitlines()[-1] if words.strip() else ""
        outcome = {0: "well", -signal.SIGKILL: "killed"}.get(run.process.returncode, f"with: {_shortened(last)}")
        self.ends[f"{run.command} {outcome}"] += 1
        if not run.harmed:
            assert "Traceback" not in words, f"{run.folder}: {words[-3000:]}"
            if not broker_killed and not any(refusal in words for refusal in REFUSALS):
                assert run.process.returncode == 0, f"{run.folder}: {words[-3000:]}"

    def _bury(self, runs: Sequence[Run]) -> None:
        """Remaining processes of killed runs: kill them now, or let them run beside the next round until they end."""
        if self._random.random() < BURIED:
            for run in runs:
                run.kill(run.members())
        if self._random.random() < AGED and not living(self._runs):
            self._age_leases()

    def _age_leases(self) -> None:
        """Age the leases of dead runs, so that they expire."""
        _age(self._table.glob(f"{LEASE_DIRECTORY}/*"))

    def _wait_for_news(self) -> None:
        def more() -> bool:
            if self._feeder.error is not None:
                raise self._feeder.error
            return len(self._feeder.committed) > self._seen

        self._feeder.resume()
        self._until(more, "records for a run")
        self._seen = len(self._feeder.committed)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition, as long as any run of this round makes progress."""

        def progressed(seen: int) -> bool:
            return condition() or self._step_count() > seen

        while not condition():
            eventually(partial(progressed, self._step_count()), f"{what}, or a step", WAIT_S)

    def _step_count(self) -> int:
        return sum(len(steps(run.folder)) for run in self._runs[-ROUND_RUNS:])

    # The end

    def _require_single(self, rows: Sequence[Row]) -> None:
        counted = Counter(map(self._job.identity, rows))
        doubled = [identity for identity, count in counted.items() if count > 1]
        assert not doubled, f"doubled after {self._runs[-1].folder}: {doubled[:10]}"

    def _settle(self) -> None:
        """All records are written and have arrived, no process is left, and vacuums removed all unnamed files."""
        self._feeder.finish()
        self._until(lambda: not living(self._runs), "the processes of killed drivers end")
        while not self._job.found_nothing(self._finished(self._job.command)):
            pass
        if self._job.has_table:
            self._clean_up()

    def _clean_up(self) -> None:
        self._age_leases()
        self._finished("vacuum", "168")
        table = open_table(self._table)
        orphans = self._files() - {self._table / path for path in table.named_files()}
        assert not orphans, f"left behind by killed loads: {sorted(orphans)[:5]}"
        kept = {Path(path) for path in table.files()}
        self._finished("vacuum", "0")
        assert self._files() == kept
        assert not list(self._table.glob(f"{LEASE_DIRECTORY}/*"))
        assert not list(self._table.glob(f"{STAGED_DIRECTORY}/**/*.arrow"))

    def _finished(self, command: str, retention_hours: str = "") -> dict[str, Any]:
        """JSON output of a command that runs undisturbed."""
        run = self._start(command, retention_hours=retention_hours)
        assert run.process.wait(WAIT_S) == 0, f"{run.folder}: {run.errors()[-3000:]}"
        return dict(json.loads((run.folder / "output").read_text()))

    def _files(self) -> set[Path]:
        return {path for path in self._table.rglob("*.parquet") if "_delta_log" not in path.parts}

    def _check(self) -> None:
        messages = read_committed(self._broker.bootstrap_servers, TOPIC)
        records = [Row(one.partition(), one.offset(), one.key(), one.value()) for one in messages]
        rows, expected = self._job.rows(), self._job.expected(records)
        self._require_single(rows)
        assert rows == expected, _difference(rows, expected)
        values = {record.value for record in records}
        assert self._feeder.committed <= values
        assert self._feeder.aborted.isdisjoint(values)

    def close(self) -> None:
        for run in self._runs:
            run.kill(run.members())
            run.process.wait()


def _age(paths: Iterable[Path]) -> None:
    """Set file times before the oldest valid lease."""
    for path in paths:
        long_ago = path.stat().st_mtime - EXPIRY_S - 1
        os.utime(path, (long_ago, long_ago))


def _shortened(line: str) -> str:
    return line if len(line) < 100 else f"{line[:97]}..."


def _difference(rows: Sequence[Row], expected: Sequence[Row]) -> str:
    missing, odd = sorted(set(expected) - set(rows))[:5], sorted(set(rows) - set(expected))[:5]
    return f"{len(rows)} rows, {len(expected)} expected; missing: {missing}, not expected: {odd}"
