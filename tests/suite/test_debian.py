"""The Debian package: its files and its maintainer scripts. `make deb` builds it from a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from release.debian import PREFIX, SCRIPTS, DebianRelease, stage

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.properties import load_properties

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "deploy" / "debian"
RELEASE = DebianRelease("0.2.0", "3.11", "amd64", "A Maintainer <a@example.com>", 1_764_546_000)
SYSTEMCTL = """#!/bin/sh
echo "$@" >> {calls}
[ "$1" != list-units ] || echo 'ottla@server.service loaded active running Ottla broker server'
"""


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """The files of a package whose environment has one module and one library."""
    root = tmp_path / "root"
    packages = root / PREFIX / "lib/python3.11/site-packages"
    (packages / "ottla-0.2.0.dist-info").mkdir(parents=True)
    (packages / "ottla-0.2.0.dist-info/direct_url.json").write_text(f'{{"url": "file://{tmp_path}"}}')
    (packages / "ottla.py").write_text("")
    (packages / "library.so").write_bytes(b"")
    (packages / "library.so").chmod(0o700)
    scripts = root / PREFIX / "bin"
    scripts.mkdir()
    (scripts / "pygmentize").write_text(f"#!{scripts}/python3\n")
    (root / PREFIX / "pyvenv.cfg").write_text(f"home = {tmp_path}\n")
    root.chmod(0o700)
    stage(root, ROOT, RELEASE)
    return root


def test_package_does_not_name_the_machine_of_its_build(tmp_path: Path, staged: Path) -> None:
    files = [path for path in staged.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [str(path) for path in files if str(tmp_path).encode() in path.read_bytes()]
    assert os.readlink(staged / PREFIX / "bin/python3") == "../../../bin/python3.11"
    assert (staged / "usr/bin/ottla").resolve() == staged / PREFIX / "bin/ottla"


def test_unit_starts_the_installed_command(staged: Path) -> None:
    unit = (staged / "usr/lib/systemd/system/ottla@.service").read_text()
    assert re.findall(r"^ExecStart=(\S+)", unit, re.MULTILINE) == ["/usr/bin/ottla"]
    assert "/opt" not in unit


def test_package_is_for_one_python_and_has_checksums(staged: Path) -> None:
    control = (staged / "DEBIAN/control").read_text()
    assert "\nVersion: 0.2.0-1+py3.11\n" in control
    assert "python3 (>= 3.11), python3 (<< 3.12)" in control
    assert subprocess.run(["md5sum", "--check", "--quiet", "DEBIAN/md5sums"], cwd=staged, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="needs dpkg-deb of Debian")
def test_built_package_has_the_modes_of_debian(tmp_path: Path, staged: Path) -> None:
    package = tmp_path / RELEASE.file_name
    build = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(staged), str(package)]
    subprocess.run(build, check=True, capture_output=True)
    listed = subprocess.run(["dpkg-deb", "--contents", package], check=True, capture_output=True, text=True).stdout
    modes = {line.split()[5]: (line.split()[0], line.split()[1]) for line in listed.splitlines()}
    assert modes["./"] == ("drwxr-xr-x", "root/root")
    assert modes[f"./{PREFIX}/bin/ottla"][0] == "-rwxr-xr-x"
    assert modes[f"./{PREFIX}/lib/python3.11/site-packages/library.so"][0] == "-rw-r--r--"


def test_settings_of_the_package_are_those_of_a_single_broker(tmp_path: Path) -> None:
    config, _ = BrokerConfig.parse(load_properties(str(DEBIAN / "server.properties")))
    assert not config.clustered
    assert config.log_dirs == ("/var/lib/ottla",)
    text = re.sub(r"^#(?=\S+=)", "", (DEBIAN / "server.properties").read_text(), flags=re.MULTILINE)
    (tmp_path / "server.properties").write_text(text)
    assert "listeners" in load_properties(str(tmp_path / "server.properties"))
    BrokerConfig.parse(load_properties(str(tmp_path / "server.properties")))


class TestMaintainerScripts:
    """The scripts with stubs for the commands of the system, and another root."""

    @pytest.fixture(autouse=True)
    def system(self, tmp_path: Path) -> None:
        (tmp_path / "run/systemd/system").mkdir(parents=True)
        cache = tmp_path / PREFIX / "lib/__pycache__"
        cache.mkdir(parents=True)
        (cache / "ottla.pyc").touch()
        stubs = {"systemctl": SYSTEMCTL.format(calls=tmp_path / "calls"), "adduser": "#!/bin/sh\n"}
        (tmp_path / "stubs").mkdir()
        for name, text in stubs.items():
            (tmp_path / "stubs" / name).write_text(text)
            (tmp_path / "stubs" / name).chmod(0o755)

    def run(self, root: Path, name: str, *arguments: str) -> list[str]:
        """The calls of systemctl by a script."""
        calls = root / "calls"
        calls.write_text("")
        text = (DEBIAN / name).read_text().replace("/run/", f"{root}/run/").replace(f"/{PREFIX}", f"{root}/{PREFIX}")
        environment = {"PATH": f"{root}/stubs:{os.environ['PATH']}"}
        done = subprocess.run(["/bin/sh", "-c", text, name, *arguments], env=environment, check=False)
        assert done.returncode == 0
        return calls.read_text().splitlines()

    def test_upgrade_stops_and_starts_running_brokers(self, tmp_path: Path) -> None:
        assert self.run(tmp_path, "prerm", "upgrade", "0.3.0-1")[-1] == "stop ottla@*.service"
        assert not (tmp_path / PREFIX / "lib/__pycache__").exists()
        started = self.run(tmp_path, "postinst", "abort-upgrade")
        assert started == ["daemon-reload", "--no-block start ottla@server.service"]
        assert self.run(tmp_path, "postinst", "abort-upgrade") == ["daemon-reload"]

    def test_removal_starts_nothing_at_the_next_installation(self, tmp_path: Path) -> None:
        assert self.run(tmp_path, "prerm", "remove") == ["stop ottla@*.service"]
        assert self.run(tmp_path, "postrm", "remove") == ["daemon-reload"]
        assert self.run(tmp_path, "postinst", "abort-upgrade") == ["daemon-reload"]

    def test_purge_keeps_data(self) -> None:
        texts = [(DEBIAN / name).read_text() for name in SCRIPTS]
        assert not [text for text in texts if re.search(r"rm\b.*(/var/lib|/etc)|userdel|deluser", text)]
