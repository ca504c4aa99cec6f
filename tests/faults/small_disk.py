"""A tmpfs of a few megabytes in its own mount namespace, and a Python that runs inside it; optionally with its own
network namespace, so that it is a host. Also a disk that can be made to fail.

A sleeping process holds the namespace: so the disk outlives the broker, and is removed with that process. No process
outside the namespace sees the mount.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

MEGABYTE = 1 << 20

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("nsenter") is None,
    reason="mounting a small disk needs root, unshare and nsenter",
)


class SmallDisk:
    """Used as a context manager. `path` as the broker sees it, `outside` as this process reaches it."""

    _mount = 'mount -t tmpfs -o size="$2" none "$1"'
    """A shell's command; $1 is the path, $2 its size in bytes."""

    def __init__(self, work_dir: Path, size_bytes: int, *, own_network: bool = False) -> None:
        self._namespaces = ["--mount", "--net"] if own_network else ["--mount"]
        self.path = work_dir / "disk"
        self.path.mkdir()
        self._size = size_bytes
        self._script = work_dir / "python-on-the-small-disk"
        self._ballast = 0

    def __enter__(self) -> Self:
        hold = f"{self._mount} && echo mounted && exec sleep infinity"
        command = ["unshare", *self._namespaces, "--propagation", "private", "sh", "-c", hold, "sh"]
        self._holder = subprocess.Popen([*command, str(self.path), str(self._size)], stdout=subprocess.PIPE)
        if self._holder.stdout.readline() != b"mounted\n":
            self._holder.wait()
            pytest.skip("this machine allows no mount in a namespace")
        self._script.write_text(f'#!/bin/sh\nexec {" ".join(self.enter)} "{sys.executable}" "$@"\n')
        self._script.chmod(0o755)
        self.outside = Path(f"/proc/{self._holder.pid}/root{self.path}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.kill()
        self._holder.wait()
        self._holder.stdout.close()

    @property
    def holder(self) -> int:
        """A process that is inside."""
        return self._holder.pid

    @property
    def enter(self) -> list[str]:
        """The prefix of a command that runs inside."""
        return ["nsenter", "--target", str(self._holder.pid), *self._namespaces, "--"]

    @property
    def python(self) -> str:
        """For `ottla.testing.Broker(python=...)`."""
        return str(self._script)

    @property
    def free_bytes(self) -> int:
        status = os.statvfs(self.outside)
        return status.f_bavail * status.f_frsize

    def fill(self) -> None:
        """Take all that is left."""
        self._ballast += 1
        chunk = bytes(64 * 1024)
        with (self.outside / f"ballast-{self._ballast}").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(chunk)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        """Give back what `fill` took."""
        for path in self.outside.glob("ballast-*"):
            path.unlink()


class FailingDisk(SmallDisk):
    """An ext4 in a file, which the kernel can shut down: from then on nearly every operation is EIO."""

    _mount = 'truncate -s "$2" "$1.img" && mkfs.ext4 -q -F "$1.img" && mount -o loop "$1.img" "$1"'
    _SHUT_DOWN = 0x8004587D
    """FS_IOC_SHUTDOWN, of XFS in the beginning."""
    _WITHOUT_FLUSHING = struct.pack("I", 2)

    def fail(self) -> None:
        descriptor = os.open(self.outside, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, self._SHUT_DOWN, self._WITHOUT_FLUSHING)
        finally:
            os.close(descriptor)

    def remount(self) -> None:
        """Mount it again, as after a repair; no process may have it open."""
        again = 'umount "$1" && mount -o loop "$1.img" "$1"'
        enter = ["nsenter", "--target", str(self._holder.pid), "--mount", "--"]
        subprocess.run([*enter, "sh", "-c", again, "sh", str(self.path)], check=True, timeout=60)
