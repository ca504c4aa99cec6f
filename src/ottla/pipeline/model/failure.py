"""Errors of Spark and of the system in one sentence: the cause, without stack traces and internal numbers.

Spark wraps an error several times: py4j in "An error occurred while calling o65.collectToPython", the scheduler
in "Job aborted due to stage failure: ... most recent failure: Lost task 1.0 ...", a Python worker in its own traceback.
The innermost reason is the one that a person can act on, so it is the one that is reported.
"""

from __future__ import annotations

import errno
import os
import re

_PYTHON_ERROR = re.compile(
    r"(?:[A-Za-z_]\w*\.)*(?P<kind>(?<=\.)[A-Z]\w*|[A-Za-z_]*(?:[Ee]rror|Exception|Interrupt))(?:: .*)?"
)
"""The last line of a traceback; of a class in a module the name may be any, as BrokerUnreachable's is."""
_PYTHON_SECTION = "Traceback (most recent call last)"
_STAGE_FAILURE = re.compile(r"Task \d+ in stage \S+ failed (\d+) times?, most recent failure: (.*)")
_LOST_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \(([^)]*)\): (.*)")
_JAVA_CLASS = re.compile(r"(?:[a-z_$][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error): ")
_WRAPPERS = ("An error occurred while calling", "An exception was thrown from the Python worker")

_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*")

WORKER_DIED = "Python worker exited unexpectedly"
NOT_CONNECTED = "Python worker failed to connect back"
"""Spark waits for ten seconds, which can't be configured."""
JAVA_DIED = (
    "Spark's Java process ended unexpectedly, such as when memory runs out and the system kills it; free memory, or "
    "run fewer concurrent tasks with --master local[N]"
)
TOO_DEEP = "it is nested too deep for Spark: use WITH, or split it into several statements"
NO_ROOM = os.strerror(errno.ENOSPC)
"""As Java has it too."""
NO_PROGRAM = "Cannot run program"
NOT_STARTED = "Error from python worker:"
"""The following lines contain the output of its Python or its shell."""
OTHER_PYTHON = "--conf spark.pyspark.python=PATH names the Python of the workers"


def spark_reason(error: BaseException) -> str:
    """The cause that an exception of PySpark, py4j or Spark Connect carries, with a way out where one is known."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, ConnectionError) or (len(lines) == 1 and lines[0].startswith(_WRAPPERS)):
        return JAVA_DIED  # py4j lost its connection, so the reason is not known
    return _advised(_python_error(lines) or _java_error(lines) or type(error).__name__)


def os_reason(error: Exception) -> str:
    """The error of the operating system, or of a library in its place, and the file it concerns, in one line."""
    if not isinstance(error, OSError) or error.strerror is None:
        return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    name = "" if error.filename is None else f" ({os.fsdecode(error.filename)})"
    words = os.strerror(error.errno) if isinstance(error.errno, int) else error.strerror  # Arrow's own strerror differs
    return f"{words.lower()}{name}"


def refusal(error: BaseException) -> str:
    """Spark's reason for refusing a statement: the first line, without SQLSTATE and the position in the text.

    For a failure that PySpark has no exception class for, the cause.
    """
    if str(error).startswith(_WRAPPERS):
        return spark_reason(error)
    reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return _SQLSTATE.sub("", reason).strip().rstrip(".")


def _python_error(lines: list[str]) -> str:
    """The last line of the innermost Python traceback: the exception that the worker raised."""
    found = ""
    for number, line in enumerate(lines):
        if _PYTHON_SECTION not in line:
            continue
        for text in lines[number + 1 :]:
            match = _PYTHON_ERROR.fullmatch(text)
            if match is not None:
                found = text[match.start("kind") :]
                break
            if text.startswith("at "):
                break
    return found


def _java_error(lines: list[str]) -> str:
    """The message of a failed task, else the innermost cause, else the first exception."""
    if NOT_STARTED in lines[:-1]:
        return f"a Python worker did not start: {lines[lines.index(NOT_STARTED) + 1]}; {OTHER_PYTHON}"
    stage = next((match for match in map(_STAGE_FAILURE.search, lines) if match), None)
    if stage is not None:
        return _task_failure(int(stage[1]), stage[2])
    unstarted = next((line for line in lines if NO_PROGRAM in line), None)
    if unstarted is not None:  # its cause has a number in place of the name
        return unstarted[unstarted.index(NO_PROGRAM) :]
    causes = [_without_class(line.removeprefix("Caused by: ")) for line in lines if line.startswith("Caused by: ")]
    first = next((line.removeprefix(": ") for line in lines if not line.startswith(_WRAPPERS)), "")
    return causes[-1] if causes else _without_class(first) or "".join(lines[:1])


def _task_failure(attempts: int, failure: str) -> str:
    lost = _LOST_TASK.search(failure)
    if lost is None:
        return failure
    host, reason = lost[1].split()[0], _without_class(lost[2])
    if WORKER_DIED in reason:
        times = "its only attempt" if attempts == 1 else f"each of {attempts} attempts"
        return f"a Python worker on {host} ended unexpectedly in {times} at a task"
    return reason


def _without_class(text: str) -> str:
    """The message without the names of Java's exceptions before it."""
    while match := _JAVA_CLASS.match(text):
        text = text[match.end() :]
    return text


def _advised(reason: str) -> str:
    if reason.startswith("java.lang.StackOverflowError"):
        return TOO_DEEP
    if "JAVA_GATEWAY_EXITED" in reason:
        return (
            "Java ended before Spark started, for the reason printed above; if there is none, check the settings "
            "spark.driver.memory and spark.driver.extraJavaOptions"
        )
    if reason.startswith(NO_ROOM):
        return (
            f"{reason}, in Spark's scratch directory or in a stream's checkpoint: free some space, or set TMPDIR in "
            "the environment to another scratch directory"
        )
    if "ended unexpectedly" in reason:
        return (
            f"{reason}, such as when memory runs out and the system kills it; lower --max-bytes-per-task or run fewer "
            "tasks at once"
        )
    if reason.startswith("ModuleNotFoundError"):
        return f"{reason} on a worker; it needs the packages of 'ottla[pipeline]', and {OTHER_PYTHON}"
    if NOT_CONNECTED in reason:
        return f"{NOT_CONNECTED} in time: the machine may be overloaded; reduce its load and run the command again"
    if NO_PROGRAM in reason or "PYTHON_VERSION_MISMATCH" in reason:
        return f"{reason.rstrip('.')}; {OTHER_PYTHON}"
    return reason
