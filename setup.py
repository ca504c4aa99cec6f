"""Builds the compiled modules; everything else is in pyproject.toml.

They are optional: without a C compiler the build continues and the pure-Python twins serve. With `OTTLA_PURE=1` they
are left out, and the wheel is for every machine.
"""

import os
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

REVISION_FILE = Path("src/ottla/_revision.txt")
"""Git revision in a source archive and in the built package; not in the repository."""


class BuildModules(build_ext):
    """Turns each .pyx into C at build time, and only then."""

    def finalize_options(self) -> None:
        from Cython.Build import cythonize

        extensions = cythonize(self.distribution.ext_modules, quiet=True)
        for extension in extensions:
            extension.optional = True  # cythonize drops the flag
        self.distribution.ext_modules = extensions
        super().finalize_options()


def revision() -> str:
    """The git revision of this tree or source archive, with `.dirty` after changes; empty if it is unknown."""
    try:
        command = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=.dirty"]
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
        return found.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return REVISION_FILE.read_text().strip() if REVISION_FILE.exists() else ""


class BuildPackage(build_py):
    """Adds the file with the revision to the built package; `ottla --version` prints it."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode and revision():
            Path(self.build_lib, "ottla", REVISION_FILE.name).write_text(revision() + "\n")


class SourceArchive(sdist):
    """Adds the file with the revision to a source archive, which contains no repository."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        if revision():
            Path(base_dir, REVISION_FILE).write_text(revision() + "\n")


setup(
    cmdclass={"build_ext": BuildModules, "build_py": BuildPackage, "sdist": SourceArchive},
    ext_modules=[
        Extension(f"ottla.{name.replace('/', '.')}", [f"src/ottla/{name}.pyx"])
        for name in ("api/_messages", "protocol/_hot", "record/_batch", "record/_keys", "search/_byte_search")
        if os.environ.get("OTTLA_PURE") != "1"
    ],
)
