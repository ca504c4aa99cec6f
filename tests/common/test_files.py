"""Files named by options and settings, and other objects in their place."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from ottla.common.platform.files import open_regular, read_file, read_start, within

DATA = b"x" * 100_000
"""More than a pipe holds."""


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    assert read_start(str(path), 10) == DATA[:10]
    assert read_start(str(path), len(DATA)) == read_start(str(path), 2 * len(DATA)) == DATA
    path.write_bytes(b"")
    assert read_start(str(path), 10) == b""
    assert read_start("/dev/null", 10) == b""
    assert read_start("/dev/zero", 10) == bytes(10)
    with pytest.raises(IsADirectoryError):
        read_start(str(tmp_path), 10)


def test_larger_file_raises_instead_of_truncating(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(DATA)
    assert read_file(str(path), len(DATA)) == within(DATA, len(DATA)) == DATA
    with pytest.raises(OSError, match=f"larger than {len(DATA) - 1} bytes") as error:
        read_file(str(path), len(DATA) - 1)
    assert error.value.errno == errno.EFBIG


def test_pipe_content_is_read(tmp_path: Path) -> None:
    """A pipe as of a shell's `<(command)`; the command may not have started to write."""
    for limit in (10, 2 * len(DATA)):
        reading, writing = os.pipe()

        def write(descriptor: int = writing) -> None:
            try:
                with os.fdopen(descriptor, "wb") as pipe:
                    pipe.write(DATA)
            except BrokenPipeError:  # the reader has enough
                pass

        writer = threading.Thread(target=write)
        timer = threading.Timer(0.05, writer.start)
        timer.start()
        assert read_start(f"/dev/fd/{reading}", limit) == DATA[:limit]
        os.close(reading)
        timer.join()
        writer.join()


def test_pipe_without_writer_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a pipe without a writer"):
        read_start(str(tmp_path / "pipe"), 10)


def test_non_regular_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(DATA)
    with open_regular(str(tmp_path / "file")) as file:
        file.seek(3)
        assert file.read() == DATA[3:]
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match=f"not a regular file: '{path}'"):
            open_regular(str(path))
