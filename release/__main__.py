"""`make release`: builds the files of a release in `dist/ottla-VERSION`, after a trial of each wheel.

Everything is built from a clone of the current commit: first the source archive, then the wheels from that archive. A
wheel for each interpreter has the compiled modules and a manylinux tag; one more wheel is pure. Each is installed from
its file into an empty environment and used there. Each wheel with compiled modules also becomes a Debian package, where
dpkg is installed; `make deb` builds these packages only. Nothing is published.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from release.debian import EXTRAS, PREFIX, DebianRelease, stage
from release.preconditions import (
    ReleaseError,
    clean_revision,
    interpreter,
    minor_version,
    package_version,
    release_notes,
    supported_pythons,
)

ROOT = Path(__file__).resolve().parents[1]
TOOLS = Path(sys.executable).parent
TRIAL = Path(__file__).with_name("trial.py")
MB = 1_000_000


class Builder:
    """Builds and tries the files of one commit in a temporary directory."""

    def __init__(self, work: Path, revision: str) -> None:
        """`files` in `work` has the results."""
        self._work = work
        self.files = work / "files"
        self.files.mkdir()
        self._source = work / "source"
        git = ("git", "-C", str(self._source))
        _run("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(self._source))
        _run(*git, "checkout", "--quiet", "--detach", revision)
        self._revision = _run(*git, "describe", "--always", "--exclude=*", "--abbrev=12").strip()
        self._build_time = _run(*git, "log", "-1", "--format=%ct").strip()

    def source_archive(self) -> Path:
        """The source archive of the commit."""
        build = (str(TOOLS / "python"), "-m", "build", "--sdist", "--outdir", str(self.files), str(self._source))
        _run(*build, SOURCE_DATE_EPOCH=self._build_time)
        (archive,) = self.files.glob("*.tar.gz")
        return archive

    def wheel(self, python: str, archive: Path, *, pure: bool) -> Path:
        """A wheel from the source archive: pure, or with compiled modules and a manylinux tag."""
        raw = Path(tempfile.mkdtemp(dir=self._work))
        environment = self._environment(python)
        self._pip(environment, "wheel", "--no-deps", "--wheel-dir", str(raw), str(archive), pure=pure)
        (built,) = raw.glob("*.whl")
        if sources := [name for name in zipfile.ZipFile(built).namelist() if name.endswith(".c")]:
            raise ReleaseError(f"{built.name} contains {sources[0]}: see exclude-package-data in pyproject.toml")
        if pure:
            return Path(shutil.copy(built, self.files))
        before = set(self.files.iterdir())
        _run(str(TOOLS / "auditwheel"), "repair", "--wheel-dir", str(self.files), str(built))
        (repaired,) = set(self.files.iterdir()) - before
        return repaired

    def try_wheel(self, python: str, wheel: Path, *, pure: bool) -> Path:
        """The interpreter of an environment in which the wheel and its extra `console` work."""
        environment = self._environment(python)
        arguments = ("--record-module", "pure" if pure else "compiled", "--revision", self._revision)
        empty = _size(environment)
        for extra, options in (("", ()), ("[console]", ("--console",))):
            self._pip(environment, "install", f"{wheel}{extra}")
            print(_run(str(environment), "-I", str(TRIAL), *arguments, *options), end="", flush=True)
            print(f"installed size{f' with {extra}' if extra else ''}: {(_size(environment) - empty) / MB:.0f} MB")
        return environment

    def debian_package(self, python: str, wheel: Path, version: str) -> Path:
        """A Debian package with a wheel and its dependencies, for machines with the same Python."""
        root = Path(tempfile.mkdtemp(dir=self._work))
        prefix = root / PREFIX
        _run(python, "-m", "venv", "--without-pip", str(prefix))
        constraints = ("--constraint", str(self._source / "constraints.txt"))
        self._pip(prefix / "bin/python", "install", "--no-compile", *constraints, f"{wheel}[{EXTRAS}]")
        release = DebianRelease(
            version=version,
            python=minor_version(python),
            architecture=_run("dpkg", "--print-architecture").strip(),
            maintainer=_run("git", "-C", str(self._source), "log", "-1", "--format=%cn <%ce>").strip(),
            time=int(self._build_time),
        )
        stage(root, self._source, release)
        package = self.files / release.file_name
        options = ("--root-owner-group", "--build", str(root), str(package))
        _run("dpkg-deb", *options, SOURCE_DATE_EPOCH=self._build_time)
        return package

    def bill_of_materials(self, environment: Path, version: str) -> None:
        """Write a CycloneDX file with the packages of an environment and their licences."""
        project = ("--pyproject", str(self._source / "pyproject.toml"), "--mc-type", "application")
        command = ("environment", *project, "--output-format", "JSON", "--output-reproducible", str(environment))
        bill = json.loads(_run(str(TOOLS / "cyclonedx-py"), *command))
        bill["metadata"]["component"]["version"] = version  # pyproject.toml does not contain it
        (self.files / f"ottla-{version}.cdx.json").write_text(json.dumps(bill, indent=2) + "\n")

    def _environment(self, python: str) -> Path:
        folder = Path(tempfile.mkdtemp(dir=self._work))
        _run(python, "-m", "venv", "--without-pip", str(folder))
        return folder / "bin/python"

    def _pip(self, environment: Path, *arguments: str, pure: bool = False) -> None:
        pip = (str(TOOLS / "python"), "-m", "pip", "--quiet", "--python", str(environment), *arguments)
        _run(*pip, OTTLA_PURE="1" if pure else "", SOURCE_DATE_EPOCH=self._build_time)


def _run(*command: str, **variables: str) -> str:
    """The output of a command, which runs outside of the tree and without the Python variables of this process."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"PATH": f"{TOOLS}:{env['PATH']}"} | variables
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _size(environment: Path) -> int:
    """Bytes of all files of an environment."""
    return sum(path.lstat().st_size for path in environment.parents[1].rglob("*"))


def _write_checksums(files: Path) -> None:
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(files.iterdir())]
    (files / "SHA256SUMS").write_text("".join(lines))


def release(pythons: list[str]) -> Path:
    """The directory with the files of the release."""
    revision = clean_revision(ROOT)
    version = package_version(ROOT)
    notes = release_notes((ROOT / "CHANGELOG.md").read_text(), version)
    found = [interpreter(name) for name in pythons]
    with tempfile.TemporaryDirectory() as work:
        builder = Builder(Path(work), revision)
        archive = builder.source_archive()
        print(archive.name)
        for python, pure in [*((each, False) for each in found), (found[-1], True)]:
            wheel = builder.wheel(python, archive, pure=pure)
            print(f"\n{wheel.name}", flush=True)
            environment = builder.try_wheel(python, wheel, pure=pure)
            if pure:
                continue
            if shutil.which("dpkg-deb") is None:
                print("no Debian package: dpkg-deb was not found")
            else:
                print(builder.debian_package(python, wheel, version).name, flush=True)
        builder.bill_of_materials(environment, version)
        (builder.files / f"ottla-{version}-notes.txt").write_text(notes)
        _write_checksums(builder.files)
        target = ROOT / "dist" / f"ottla-{version}"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(builder.files, target)
    return target


def debian_packages(pythons: list[str]) -> Path:
    """The directory with a Debian package for each interpreter, without a trial."""
    revision = clean_revision(ROOT)
    version = package_version(ROOT)
    if shutil.which("dpkg-deb") is None:
        raise ReleaseError("dpkg-deb was not found: build the packages on Debian or Ubuntu")
    found = [interpreter(name) for name in pythons]
    target = ROOT / "dist" / "debian"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        builder = Builder(Path(work), revision)
        archive = builder.source_archive()
        for python in found:
            wheel = builder.wheel(python, archive, pure=False)
            shutil.copy(builder.debian_package(python, wheel, version), target)
    return target


def main() -> int:
    """Exit code 0, or 2 with the reason."""
    parser = argparse.ArgumentParser(prog="make release", description="Build and test the files of a release.")
    parser.add_argument("--python", action="append", metavar="NAME", help="interpreter  [default: all supported ones]")
    parser.add_argument("--debian", action="store_true", help="build the Debian packages only, in dist/debian")
    options = parser.parse_args()
    build = debian_packages if options.debian else release
    try:
        target = build(options.python or [f"python{version}" for version in supported_pythons(ROOT)])
    except ReleaseError as error:
        print(f"make {'deb' if options.debian else 'release'}: {error}", file=sys.stderr)
        return 2
    print(f"\n{target.relative_to(ROOT)}")
    for path in sorted(target.iterdir()):
        print(f"{path.stat().st_size:>10,}  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
