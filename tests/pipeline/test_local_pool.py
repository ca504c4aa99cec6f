"""Worker processes of the local engine: results, retries, deaths, and the end of the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `lake`")

from ottla.pipeline.load.engine import IN_PROCESS_BYTES, LOCAL_MAX_BYTES, EngineChoice
from ottla.pipeline.local.pool import TaskFailedError, open_local

from ..cluster.nodes import eventually
from .local_work import Endless, Flaky, living

WAIT_S = 120.0
PROGRAM = Path(__file__).with_name("local_work.py")


@pytest.fixture
def graves(tmp_path: Path) -> Path:
    folder = tmp_path / "graves"
    folder.mkdir()
    return folder


def test_tasks_run_in_workers_that_the_next_run_keeps(graves: Path) -> None:
    seen: list[int] = []
    with open_local(2, 1) as session:
        first = session.run(5, Flaky(graves, -1, 0), lambda number, _: seen.append(number))
        second = session.run(5, Flaky(graves, -1, 0))
    assert [number for number, _ in first] == sorted(seen) == [0, 1, 2, 3, 4]
    workers = {pid for _, pid in [*first, *second]}
    assert len(workers) <= 2
    assert os.getpid() not in workers
    assert not living({str(pid): pid for pid in workers})


def test_small_run_starts_no_process(graves: Path) -> None:
    with open_local(0, 2) as session:
        assert session.run(3, Flaky(graves, 1, 1)) == [(number, os.getpid()) for number in range(3)]
    assert len(list(graves.iterdir())) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_failed_task_is_given_up_after_its_attempts(graves: Path, workers: int) -> None:
    with open_local(workers, 3) as session:
        with pytest.raises(TaskFailedError, match=r"^ConnectionResetError: task 1 failed$"):
            session.run(3, Flaky(graves, 1, 3))
        assert session.notes == []
    assert len(list(graves.iterdir())) == 3


def test_dead_worker_is_replaced_and_reported(graves: Path) -> None:
    with open_local(2, 3) as session:
        assert [number for number, _ in session.run(4, Flaky(graves, 1, 2, signal=True))] == [0, 1, 2, 3]
        assert session.notes == ["a worker process ended unexpectedly (SIGKILL); its task was repeated"] * 2


def test_dead_workers_end_the_run_after_the_attempts(graves: Path) -> None:
    sentence = r"ended unexpectedly \(SIGKILL\) in each of 2 attempts at a task, .*--max-bytes-per-task"
    with open_local(1, 2) as session, pytest.raises(TaskFailedError, match=sentence):
        session.run(1, Flaky(graves, 0, 9, signal=True))
    assert len(list(graves.iterdir())) == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_workers_unwind_and_end_with_their_driver(tmp_path: Path, number: signal.Signals) -> None:
    driver = subprocess.Popen([sys.executable, str(PROGRAM), str(tmp_path)], stderr=subprocess.DEVNULL)
    files = [tmp_path / "task-0", tmp_path / "task-1"]
    try:
        eventually(lambda: all(file.exists() and file.read_text() for file in files), "both tasks run", WAIT_S)
        workers = {file.name: int(file.read_text()) for file in files}
        driver.send_signal(number)
        driver.wait(WAIT_S)
        eventually(lambda: not living(workers), "the workers end", WAIT_S)
    finally:
        driver.kill()
        driver.wait()
    assert not any(file.exists() for file in files)


def test_cancelled_run_fails_and_unwinds_its_tasks(tmp_path: Path) -> None:
    outcome: list[str] = []
    with open_local(2, 3) as session:

        def run() -> None:
            try:
                session.run(2, Endless(tmp_path))
            except TaskFailedError as error:
                outcome.append(str(error))

        thread = threading.Thread(target=run)
        thread.start()
        files = [tmp_path / "task-0", tmp_path / "task-1"]
        eventually(lambda: all(file.exists() and file.read_text() for file in files), "both tasks run", WAIT_S)
        workers = {file.name: int(file.read_text()) for file in files}
        session.cancel()
        thread.join(WAIT_S)
        assert not living(workers)
    assert len(outcome) == 1
    assert not any(file.exists() for file in files)


def choice(requested: str, spark_option: str = "") -> EngineChoice:
    return EngineChoice(
        requested=requested,
        spark_option=spark_option,
        open_spark=lambda: nullcontext(None),
        require_spark=bool,
    )


@pytest.mark.parametrize(
    ("requested", "option", "size", "name", "reason"),
    [
        ("auto", "", LOCAL_MAX_BYTES, "local", "at most 4 GiB to read"),
        ("auto", "", LOCAL_MAX_BYTES + 1, "spark", "more than 4 GiB to read"),
        ("auto", "--master", 1, "spark", "--master is set"),
        ("local", "--master", LOCAL_MAX_BYTES + 1, "local", "--engine local"),
        ("spark", "", 1, "spark", "--engine spark"),
    ],
)
def test_engine_follows_options_then_size(requested: str, option: str, size: int, name: str, reason: str) -> None:
    pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
    engine = choice(requested, option).choose(size, 1 << 28)
    assert (engine.name, engine.reason) == (name, reason)


@pytest.mark.parametrize(
    ("size", "task_bytes", "workers"),
    [(IN_PROCESS_BYTES, 1 << 28, 0), (IN_PROCESS_BYTES + 1, 1 << 28, 1), (101, 100, 1), (100, 100, 0)],
)
def test_small_load_runs_in_this_process(size: int, task_bytes: int, workers: int) -> None:
    with choice("local").choose(size, task_bytes).open_session() as session:
        assert session.workers == workers
