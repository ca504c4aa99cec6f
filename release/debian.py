"""A Debian package from an environment with a wheel and its dependencies.

The environment is in /usr/lib/ottla and runs the Python of the machine, so a package is for one minor version of
Python. Maintainer scripts, settings and the systemd unit come from `deploy/`. dpkg owns every file but compiled ones:
nothing is downloaded at the installation.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import NamedTuple

PREFIX = "usr/lib/ottla"
EXTRAS = "console,telemetry,zookeeper"
"""All that need no compiler, no Spark and no library of the system; the environment has no pip to add others."""
UNIT = "ottla@.service"
SETTINGS = "server.properties"
SCRIPTS = ("postinst", "postrm", "prerm")
COMMAND = f"""#!/{PREFIX}/bin/python3
import sys

from ottla.__main__ import main

sys.exit(main())
"""


class DebianRelease(NamedTuple):
    """Facts for the control file and the changelog of a package."""

    version: str
    python: str
    """Minor version of Python, such as 3.11."""
    architecture: str
    maintainer: str
    """Name and address of the committer."""
    time: int
    """Of the commit, in seconds since 1970."""

    @property
    def debian_version(self) -> str:
        """The package of a later Python is the newer one, so that an upgrade of Debian installs it."""
        return f"{self.version}-1+py{self.python}"

    @property
    def file_name(self) -> str:
        return f"ottla_{self.debian_version}_{self.architecture}.deb"


def stage(root: Path, source: Path, release: DebianRelease) -> None:
    """Add everything to `root`, which has an environment at `PREFIX`, that `dpkg-deb --build` needs."""
    _use_python_of_machine(root / PREFIX, release.python)
    deploy = source / "deploy"
    unit = (deploy / "systemd" / UNIT).read_text().replace("/opt/ottla/bin/ottla", "/usr/bin/ottla")
    documents = root / "usr/share/doc/ottla"
    _write(root / "usr/lib/systemd/system" / UNIT, unit.replace("in /opt/ottla", f"in /{PREFIX}"))
    _write(root / "etc/ottla" / SETTINGS, (deploy / "debian" / SETTINGS).read_text())
    _write(documents / "copyright", (deploy / "debian" / "copyright").read_text())
    _compress(documents / "changelog.gz", (source / "CHANGELOG.md").read_text())
    _compress(documents / "changelog.Debian.gz", _changelog(release))
    command = root / "usr/bin/ottla"
    command.parent.mkdir(parents=True)
    command.symlink_to("../lib/ottla/bin/ottla")
    _set_modes(root)
    control = root / "DEBIAN"
    _write(control / "md5sums", _checksums(root))
    _write(control / "conffiles", f"/etc/ottla/{SETTINGS}\n")
    _write(control / "control", _control(deploy / "debian" / "control", release, _installed_kib(root)))
    for name in SCRIPTS:
        _write(control / name, (deploy / "debian" / name).read_text())
        (control / name).chmod(0o755)


def _use_python_of_machine(prefix: Path, python: str) -> None:
    """Replace what refers to the machine of the build: interpreter, scripts, paths of installed files."""
    shutil.rmtree(prefix / "include", ignore_errors=True)
    shutil.rmtree(prefix / "bin")
    _write(prefix / "bin/ottla", COMMAND)
    (prefix / "bin/ottla").chmod(0o755)
    (prefix / "bin/python3").symlink_to(f"../../../bin/python{python}")
    _write(prefix / "pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")
    for path in [*prefix.rglob("direct_url.json"), *prefix.rglob(".gitignore")]:
        path.unlink()


def _set_modes(root: Path) -> None:
    """As in a package of Debian, whatever the umask and the wheels say; libraries are not executable."""
    for path in (root, *root.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
        elif not path.is_symlink():
            executable = path.parent.name == "bin"
            path.chmod(0o755 if executable else 0o644)


def _checksums(root: Path) -> str:
    files = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())
    lines = (f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root)}\n" for path in files)
    return "".join(lines)


def _installed_kib(root: Path) -> int:
    return sum(-(-path.lstat().st_size // 1024) for path in root.rglob("*"))


def _control(template: Path, release: DebianRelease, installed_kib: int) -> str:
    major, minor = release.python.split(".")
    return template.read_text().format(
        version=release.debian_version,
        architecture=release.architecture,
        maintainer=release.maintainer,
        installed_kib=installed_kib,
        python=release.python,
        next_python=f"{major}.{int(minor) + 1}",
    )


def _changelog(release: DebianRelease) -> str:
    date = format_datetime(datetime.fromtimestamp(release.time, UTC))
    entry = f"  * Ottla {release.version}: see /usr/share/doc/ottla/changelog.gz."
    heading = f"ottla ({release.debian_version}) unstable; urgency=medium"
    return f"{heading}\n\n{entry}\n\n -- {release.maintainer}  {date}\n"


def _compress(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
