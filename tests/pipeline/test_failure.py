"""Error messages for Spark's errors: the cause in a sentence, from texts of Spark, py4j and Python workers."""

from __future__ import annotations

import errno

import pytest

from ottla.client.wire.connection import BrokerUnreachable
from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.model.failure import JAVA_DIED, TOO_DEEP, os_reason, refusal, spark_reason

JAVA_STACK = """
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:1136)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


def aborted(failure: str, attempts: int = 4, stack: str = JAVA_STACK) -> str:
    """A failed stage in the text of py4j."""
    return (
        "An error occurred while calling o65.collectToPython.\n"
        f": org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed {attempts} "
        f"times, most recent failure: Lost task 1.3 in stage 0.0 (TID 5) (192.0.2.2 executor driver): {failure}"
        f"{stack}\nDriver stacktrace:\n\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)"
    )


CRASH = (
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting "
    "'spark.sql.execution.pyspark.udf.faulthandler.enabled' or 'spark.python.worker.faulthandler.enabled' "
    "configuration to 'true' for the better Python traceback."
)
NO_MODULE = (
    "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    "Traceback (most recent call last):\n"
    '  File "/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 189, in _read_with_length\n'
    "    return self.loads(obj)\n"
    "ModuleNotFoundError: No module named 'pyarrow'\n\n"
    "During handling of the above exception, another exception occurred:\n\n"
    "Traceback (most recent call last):\n"
    '  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 4207, in invoke_udf\n'
    "    raise SerializationError(...)\n"
    "pyspark.serializers.SerializationError: Caused by Traceback (most recent call last):\n"
    '  File "/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 189, in _read_with_length\n'
    "ModuleNotFoundError: No module named 'pyarrow'\n"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "/x/land.py", line 1, in run\n    raise error\nValueError: the reason\n' + JAVA_STACK,
            "ValueError: the reason",
        ),
        (aborted("x\nTraceback (most recent call last):\n  File\nstruct.error: unpack"), "error: unpack"),
        (aborted("x\nTraceback (most recent call last):\n  File\n    call()\nMemoryError"), "MemoryError"),
        (
            aborted(CRASH, stack=JAVA_STACK + "Caused by: java.io.EOFException"),
            "a Python worker on 192.0.2.2 ended unexpectedly in each of 4 attempts at a task, such as when memory "
            "runs out and the system kills it; lower --max-bytes-per-task or run fewer tasks at once",
        ),
        (
            aborted(NO_MODULE),
            "ModuleNotFoundError: No module named 'pyarrow' on a worker; it needs the packages of 'ottla[pipeline]', "
            "and --conf spark.pyspark.python=PATH names the Python of the workers",
        ),
        (
            aborted('java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory'),
            'Cannot run program "/no/python": error=2, No such file or directory; '
            "--conf spark.pyspark.python=PATH names the Python of the workers",
        ),
        (
            aborted(
                "org.apache.spark.SparkException: \nError from python worker:\n"
                "  /cache/bin/python: 15: exec: /venv/bin/python: Permission denied\nPYTHONPATH was:\n  /spark/python\n"
            ),
            "a Python worker did not start: /cache/bin/python: 15: exec: /venv/bin/python: Permission denied; "
            "--conf spark.pyspark.python=PATH names the Python of the workers",
        ),
        (
            aborted("ExecutorLostFailure (executor 3 exited) Reason: Command exited with code 137", stack=""),
            "ExecutorLostFailure (executor 3 exited) Reason: Command exited with code 137",
        ),
        (
            aborted("org.apache.spark.SparkException: Python worker failed to connect back."),
            "Python worker failed to connect back in time: the machine may be overloaded; reduce its load "
            "and run the command again",
        ),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'\n" + JAVA_STACK,
            "Could not parse Master URL: 'local[x]'",
        ),
        (
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": io.fabric8.kubernetes.client.KubernetesClientException: An error has occurred.\n"
            + JAVA_STACK
            + "Caused by: java.io.IOException: Connection refused: /192.0.2.1:1\n\t... 2 more\n"
            "Caused by: java.net.ConnectException: Connection refused\n",
            "Connection refused",
        ),
        ("An error occurred while calling o65.collectToPython", JAVA_DIED),
        ("short\nrest", "short"),
        ("", "RuntimeError"),
    ],
)
def test_the_cause_in_a_sentence(text: str, reason: str) -> None:
    assert spark_reason(RuntimeError(text)) == reason


def test_lost_connection_is_reported_as_dead_java() -> None:
    assert spark_reason(ConnectionRefusedError(111, "Connection refused")) == JAVA_DIED


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "/t/_delta_log"), "not a directory (/t/_delta_log)"),
        (OSError(errno.ENOSPC, "Error writing bytes. Detail: [errno 28] No space"), "no space left on device"),
        (OSError("a store's words\nand a stack trace"), "a store's words"),
        (ValueError(), "ValueError"),
    ],
)
def test_system_errors_without_numbers(error: Exception, reason: str) -> None:
    assert os_reason(error) == reason


def raised(line: str) -> str:
    """A failed stage with that error in a Python task."""
    return aborted("x\nTraceback (most recent call last):\n  File\n    call()\n" + line)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (RuntimeError(raised("ottla.client.wire.connection.BrokerUnreachable: no way")), BrokerUnreachable, "no way"),
        (RuntimeError(raised("ottla.common.errors.OperatorError: name another")), OperatorError, "name another"),
        (RuntimeError(raised("ottla.common.errors.KafkaError: late")), OttlaError, "the copy failed: late"),
        (RuntimeError(raised("ottla.pipeline.model.plan.DataLossError: gone")), OttlaError, "the copy failed: gone"),
        (RuntimeError(raised("ottla.client.wire.failure.TopicReplaced: gone")), OttlaError, "the copy failed: gone"),
        (RuntimeError(raised("ValueError: odd")), OttlaError, "the copy failed: ValueError: odd"),
        (
            RuntimeError(raised("PermissionError: [Errno 13] Permission denied: '/lake/x'")),
            OperatorError,
            "the lake can't be written: permission denied; fix the cause and run it again",
        ),
        (
            RuntimeError(raised("OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left")),
            OperatorError,
            "the lake can't be written: no space left on device; fix the cause and run it again",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "/lake/x"),
            OperatorError,
            "the lake can't be written: no space left on device; fix the cause and run it again",
        ),
        (RuntimeError(raised("OSError: [Errno 5] Input/output error")), OttlaError, "the copy failed: OSError: [Errno"),
        (ConnectionRefusedError(111, "Connection refused"), OttlaError, f"the copy failed: {JAVA_DIED}"),
        (
            RuntimeError(aborted("java.io.IOException: No space left on device")),
            OperatorError,
            "the copy failed: No space left on device, in Spark's scratch directory",
        ),
    ],
)
def test_task_failure_has_error_class_of_its_cause(error: Exception, kind: type[Exception], sentence: str) -> None:
    """Errors that the operator can fix end with exit code 2, at any place."""
    pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
    from ottla.pipeline.load.tasks import task_failure

    found = task_failure("the copy failed", error, "the lake")
    assert type(found) is kind
    assert str(found).startswith(sentence)


def test_internal_spark_error_is_reported() -> None:
    text = "An error occurred while calling o1.sql.\n: {}\n\tat org.apache.spark.X.y(X:1)"
    assert refusal(RuntimeError(text.format("java.lang.AssertionError"))) == "java.lang.AssertionError"
    assert refusal(RuntimeError(text.format("java.lang.StackOverflowError"))) == TOO_DEEP
