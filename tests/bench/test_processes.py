"""CPU and memory of real processes and their children."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from harness.processes import memory_mb, pinned, proportional_mb, tree, usage

BURNS = """
import os, sys, threading, time
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass
{body}
print("done", flush=True)
sys.stdin.read()
"""
OWN = "burn(0.3)"
THREAD_THAT_ENDED = "t = threading.Thread(target=burn, args=(0.3,)); t.start(); t.join()"
CHILD_THAT_ENDED = """
if os.fork() == 0:
    burn(0.3)
    os._exit(0)
os.wait()
"""
CHILD_THAT_LIVES = """
reading, writing = os.pipe()
if os.fork() == 0:
    burn(0.3)
    os.write(writing, b"x")
    time.sleep(1000)
os.read(reading, 1)
"""
Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python program and waits for its "done"."""
    started: list[subprocess.Popen[str]] = []

    def launch(body: str) -> subprocess.Popen[str]:
        program = [sys.executable, "-S", "-E", "-c", BURNS.replace("{body}", body)]
        process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        return process

    yield launch
    for process in started:
        for pid in reversed(tree(process.pid)):
            subprocess.run(["kill", "-KILL", str(pid)], check=False)
        process.communicate()


@pytest.mark.parametrize("body", [OWN, THREAD_THAT_ENDED, CHILD_THAT_ENDED, CHILD_THAT_LIVES])
def test_all_work_of_a_process_and_its_children_counts_once(start: Start, body: str) -> None:
    used = usage(start(body).pid).cpu_s
    assert 0.28 <= used < 0.55


def test_an_idle_window_uses_nothing(start: Start) -> None:
    pid = start(OWN).pid
    before = usage(pid)
    time.sleep(0.05)
    window = usage(pid) - before
    assert window.cpu_s <= 0.01
    assert window.seconds >= 0.05


def test_memory_counts_children_and_remembers_the_peak(start: Start) -> None:
    alone = memory_mb(start("pass").pid)
    both = start(CHILD_THAT_LIVES.replace("burn(0.3)", "held = b'x' * (50 << 20)"))
    assert memory_mb(both.pid) > 2 * alone * 0.8 + 45
    gone = start("held = b'x' * (50 << 20); del held")
    assert memory_mb(gone.pid) < alone + 10
    assert memory_mb(gone.pid, "VmHWM") > alone + 45


def test_memory_that_is_shared_counts_once(start: Start) -> None:
    alone = proportional_mb(start("pass").pid)
    both = start("held = b'x' * (50 << 20)" + CHILD_THAT_LIVES).pid
    assert memory_mb(both) > 95
    assert 45 < proportional_mb(both) - alone < 70


def test_a_process_that_is_gone_uses_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert usage(process.pid).cpu_s == 0


def test_pinned_keeps_the_pid_and_the_cpus() -> None:
    program = "import os; print(os.getpid(), *os.sched_getaffinity(0))"
    process = subprocess.Popen(pinned([sys.executable, "-c", program], {0}), stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate()
    assert output.split() == [str(process.pid), "0"]
