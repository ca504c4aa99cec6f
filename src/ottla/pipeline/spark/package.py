"""Ottla itself as an archive that is sent with a job: executors on other machines need not have it installed.

Spark unpacks the archive into a directory of the job that comes before the installed packages in a Python worker's
path, so a worker runs the very code that planned the load, even if another version of Ottla is installed. The archive
contains the compiled module under its platform's own file name (PEP 3149): a worker of the same Python and platform
imports it, any other ignores it and uses the pure twin (`ottla.record.walk`).

Excluded: packages that Ottla imports (pyarrow, cramjam and crc32c are built for a platform). The workers' Python must
it, or an environment archive brings it (`ottla.pipeline.spark.environment`).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import ottla

NAME = "ottla"
SUFFIXES = (".py", *EXTENSION_SUFFIXES)


def package_files() -> Iterator[tuple[Path, str]]:
    """The modules of the installed package: path, and name relative to the package."""
    root = Path(ottla.__file__).parent
    for source in sorted(root.rglob("*")):
        if source.name.endswith(SUFFIXES):
            yield source, source.relative_to(root).as_posix()


def write_package(path: Path) -> Path:
    """Write the installed package's modules to a zip file at `path`, relative to the package; returns `path`."""
    with zipfile.ZipFile(path, "w") as archive:
        for source, name in package_files():
            archive.write(source, name)
    return path


def send_package(session: Any, scratch: Path, *, connect: bool) -> None:
    """Send the package to the executors of a session; `scratch` must live as long as the session does."""
    archive = f"{write_package(scratch / f'{NAME}.zip')}#{NAME}"
    if connect:
        session.addArtifact(archive, archive=True)
    else:
        session.sparkContext.addArchive(archive)
