"""What tests need from registries, fetched by whoever needs it first, or all of it before by `python compat/fetch.py`.

Each thing is whole under its name or not there, also after an interruption. One process fetches a thing, the others
wait and find it; and one process at a time runs Maven, whose local repository is made for one.
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
"""Environments, each with what compat/<name>/requirements.txt pins."""
GO_MODULES = ("newest.mod", "go.mod")
"""Sets of versions of Go's libraries: the first that this machine's Go can build is taken."""
LOG_ARTIFACT = ("org.slf4j", "slf4j-simple", "1.7.36")
"""Of the version of slf4j-nop in java/tools.xml."""
REGISTRY_ARTIFACT = ("io.apicurio", "apicurio-registry-app", "3.0.9", "tar.gz", "all")
ATTEMPTS = 3
"""A registry that is asked for some thousand files gives one of them not at once now and then."""
PAUSE_S = 5.0
FETCH_S = 900.0


class NotToBeHad(Exception):
    """What can't be fetched on this machine, and why."""


def need(command: str) -> str:
    """The path of `command`. Raises NotToBeHad."""
    found = shutil.which(command)
    if found is None:
        raise NotToBeHad(f"{command} is not installed on this machine")
    return found


@contextmanager
def alone(what: str) -> Iterator[None]:
    """One process fetches `what`; the others wait, and find it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetched(failure: str, *command: str, cwd: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
    """Run `command`, again where it fails. Raises NotToBeHad: `failure`, and the end of what it said the last time."""
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
    """Have Maven copy what `arguments` name to `target`, which is whole or not there."""
    partial = target.with_name(f"{target.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    with alone("maven"):
        fetched(failure, need("mvn"), "-q", "-B", *arguments, f"-DoutputDirectory={partial}")
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def is_of(stamp: Path, source: Path) -> bool:
    """Whether what is there was made from `source`."""
    return stamp.exists() and stamp.read_bytes() == source.read_bytes()


def java_libraries(name: str) -> str:
    """The class path of the jars of compat/java/<name>.xml."""
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
    """A log on stderr, which goes before slf4j-nop on a class path."""
    jar = CACHE / "java-log" / f"{LOG_ARTIFACT[1]}-{LOG_ARTIFACT[2]}.jar"
    with alone(jar.parent.name):
        if not jar.exists():
            artifact = f"-Dartifact={':'.join(LOG_ARTIFACT)}"
            by_maven(f"Maven could not resolve {LOG_ARTIFACT[1]}", jar.parent, "dependency:copy", artifact)
    return jar


def registry_jar() -> Path:
    """The program of Apicurio Registry, with its libraries beside it."""
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
    """A folder with kafkajs installed by npm."""
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
    """The Python of an environment with what compat/<name>/requirements.txt pins."""
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
    """The program of compat/go, built at `target`; a Go that is too old for a module file says so and fetches no other.

    Raises NotToBeHad, and CalledProcessError where the program itself is not right.
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
    """All of it, and what of it can't be had."""
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
