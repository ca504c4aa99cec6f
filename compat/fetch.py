"""Fetches the dependencies of the compat tests on first use, or all of them by `python compat/fetch.py`.

Each item is complete under its name or absent, also after an interruption. One process fetches an item while the others
wait for it. Only one process runs Maven at a time, because its local repository does not support concurrent use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".cache" / "compat"
JAVA_LIBRARIES = (
    "kafka",
    "tools",
    "kafka-0.8",
    "kafka-0.9",
    "kafka-2.7",
    "kafka-3.9",
    "kafka-4.1",
    "zookeeper",
    "streams",
    "older",
    "spark",
    "iceberg",
)
"""Class paths, each resolved by compat/java/<name>.xml."""
PYTHONS = ("kazoo", "quixstreams", "registry", "older", "spark")
"""Environments with the packages pinned in compat/<name>/requirements.txt."""
GO_MODULES = ("newest.mod", "go.mod")
"""Version sets of the Go libraries; the first that the installed Go can build is used."""
LOG_ARTIFACT = ("org.slf4j", "slf4j-simple", "1.7.36")
"""Same version as slf4j-nop in java/tools.xml."""
REGISTRY_ARTIFACT = ("io.apicurio", "apicurio-registry-app", "3.0.9", "tar.gz", "all")
ATTEMPTS = 3
"""A registry that serves thousands of files occasionally fails a request."""
PAUSE_S = 5.0
FETCH_S = 900.0


class NotToBeHad(Exception):
    """An item is unavailable on this machine, with the reason."""


def need(command: str) -> str:
    """Returns the path of `command`. Raises NotToBeHad."""
    found = shutil.which(command)
    if found is None:
        raise NotToBeHad(f"{command} is not installed on this machine")
    return found


@contextmanager
def alone(what: str) -> Iterator[None]:
    """Holds a lock while one process fetches `what`; the others wait and then find it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetched(failure: str, *command: str, cwd: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
    """Run `command`, with retries. Raises NotToBeHad with `failure` and the end of the last output."""
    for attempt in range(ATTEMPTS):
        time.sleep(attempt * PAUSE_S)
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(settings or {})},
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            check=False,
        )
        if done.returncode == 0:
            return
    raise NotToBeHad(f"{failure}: {(done.stdout + done.stderr).strip()[-300:]}")


def by_maven(failure: str, target: Path, *arguments: str) -> None:
    """Have Maven copy the artifacts in `arguments` to `target`, which is complete or absent."""
    partial = target.with_name(f"{target.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    with alone("maven"):
        fetched(failure, need("mvn"), "-q", "-B", *arguments, f"-DoutputDirectory={partial}")
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def is_of(stamp: Path, source: Path) -> bool:
    """Returns whether the item was built from the current `source`."""
    return stamp.exists() and stamp.read_bytes() == source.read_bytes()


def java_libraries(name: str) -> str:
    """Returns the class path with the jars of compat/java/<name>.xml."""
    need("java")
    libraries = CACHE / f"java-{name}"
    pom, stamp = ROOT / "compat" / "java" / f"{name}.xml", libraries / "pom.xml"
    with alone(libraries.name):
        if not is_of(stamp, pom):
            failure = f"Maven could not resolve compat/java/{pom.name}"
            by_maven(failure, libraries, "-f", str(pom), "dependency:copy-dependencies")
            shutil.copy(pom, stamp)
    return str(libraries / "*")


def log_jar() -> Path:
    """A logger that writes to stderr; it precedes slf4j-nop on a class path."""
    jar = CACHE / "java-log" / f"{LOG_ARTIFACT[1]}-{LOG_ARTIFACT[2]}.jar"
    with alone(jar.parent.name):
        if not jar.exists():
            artifact = f"-Dartifact={':'.join(LOG_ARTIFACT)}"
            by_maven(f"Maven could not resolve {LOG_ARTIFACT[1]}", jar.parent, "dependency:copy", artifact)
    return jar


def registry_jar() -> Path:
    """Returns the Apicurio Registry program, with its libraries in the same directory."""
    need("java")
    _, name, version, kind, classifier = REGISTRY_ARTIFACT
    home = CACHE / f"apicurio-{version}"
    jar = home / f"{name}-{version}-runner.jar"
    with alone(home.name):
        if not jar.exists():
            packed = CACHE / f"{home.name}-packed"
            artifact = f"-Dartifact={':'.join(REGISTRY_ARTIFACT)}"
            by_maven(f"Maven could not resolve {name}", packed, "dependency:copy", artifact)
            unpacked = CACHE / f"{home.name}-unpacked"
            shutil.rmtree(unpacked, ignore_errors=True)
            with tarfile.open(packed / f"{name}-{version}-{classifier}.{kind}") as archive:
                archive.extractall(unpacked, filter="data")
            unpacked.rename(home)
            shutil.rmtree(packed)
    return jar


def kafkajs() -> Path:
    """Returns a folder with kafkajs, installed by npm."""
    need("node")
    home, source = CACHE / "kafkajs", ROOT / "compat" / "kafkajs"
    home.mkdir(parents=True, exist_ok=True)
    with alone(home.name):
        stamp = home / "node_modules" / ".package.json"
        if not is_of(stamp, source / "package.json"):
            shutil.copy(source / "package.json", home)
            options = ("--no-package-lock", "--no-audit", "--no-fund", "--silent")
            failure = "npm could not install kafkajs"
            fetched(failure, need("npm"), "install", *options, cwd=home, settings={"CI": "true"})
            shutil.copy(source / "package.json", stamp)
        program = home / "client.mjs"
        if not is_of(program, source / program.name):
            shutil.copy(source / program.name, program)  # never while another process runs it
    return home


def python_environment(name: str) -> Path:
    """Returns the Python of an environment with the packages of compat/<name>/requirements.txt."""
    home = CACHE / name
    stamp, wanted = home / "requirements.txt", ROOT / "compat" / name / "requirements.txt"
    with alone(name):
        if not is_of(stamp, wanted):
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=FETCH_S)
            pip = (str(home / "bin" / "pip"), "install", "-q", "--disable-pip-version-check")
            fetched(f"pip could not install what {name} needs", *pip, "-r", str(wanted))
            shutil.copy(wanted, stamp)
    return home / "bin" / "python"


def go_program(target: Path) -> Path:
    """Builds the program of compat/go at `target`. A Go too old for a module file fails instead of downloading another
    Go.

    Raises NotToBeHad, or CalledProcessError when the program itself does not compile.
    """
    go, source, settings = need("go"), ROOT / "compat" / "go", {"GOTOOLCHAIN": "local"}
    refusals = []
    for modules in GO_MODULES:
        command = (go, "mod", "download", f"-modfile={modules}")
        try:
            fetched(f"Go could not resolve {modules}", *command, cwd=source, settings=settings)
        except NotToBeHad as error:
            refusals.append(str(error))
        else:
            build = [go, "build", f"-modfile={modules}", "-o", str(target), "."]
            subprocess.run(build, cwd=source, env={**os.environ, **settings}, check=True, timeout=FETCH_S)
            return target
    raise NotToBeHad("; ".join(refusals))


def main() -> None:
    """Fetch everything and print the items that are unavailable."""
    with tempfile.TemporaryDirectory() as folder:
        wanted: dict[str, Callable[[], object]] = {
            **{f"java-{name}": lambda name=name: java_libraries(name) for name in JAVA_LIBRARIES},  # type: ignore[misc]
            "java-log": log_jar,
            "registry": registry_jar,
            "kafkajs": kafkajs,
            **{f"python-{name}": lambda name=name: python_environment(name) for name in PYTHONS},  # type: ignore[misc]
            "go": lambda: go_program(Path(folder) / "compat"),
        }
        for name, get in wanted.items():
            begin = time.monotonic()
            try:
                get()
            except NotToBeHad as error:
                print(f"{name}: {error}", flush=True)
            else:
                print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
