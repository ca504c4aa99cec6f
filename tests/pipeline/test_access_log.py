"""Recognition of access logs, in whole files and in single lines; every line is returned."""

from __future__ import annotations

import io

import pytest

from ottla.common.errors import OperatorError
from ottla.pipeline.model import access_log
from ottla.pipeline.model.access_log import EXAMPLE, AccessLog
from ottla.pipeline.model.events import page_views

GOOD = EXAMPLE.encode()


def opened(*lines: bytes) -> AccessLog:
    return AccessLog(io.BytesIO(b"".join(line + b"\n" for line in lines)), "a.log")


@pytest.mark.parametrize(
    "line",
    [
        GOOD,
        b'192.0.2.7 - - [02/Mar/2026:10:05:03 +0000] "GET / HTTP/1.1" 304 -',
        b'2001:db8::1 - frank [02/Mar/2026:10:05:03 -0700] "GET /?b=\\"c\\" HTTP/2.0" 200 1 "-" "an \\"agent\\"" 0.003',
        b'host.example.com - - [02/Mar/2026:10:05:03 +0000] "-" 408 0 "-" "-"\r',
        b'192.0.2.7 - - [02/Mar/2026:10:05:03 +0000] "\\x16\\x03\\x01" 400 226 "-" "caf\xc3\xa9 \xff"',
        b'192.0.2.7 - - [02/Mar/2026:10:05:03 +0000] "" 400 0 "-" "-"',
    ],
)
def test_lines_as_servers_write_them(line: bytes) -> None:
    log = opened(line)
    assert list(log) == [line]
    assert log.odd == 0


def test_the_generated_stream_is_one() -> None:
    lines = list(page_views(2_000))
    log = opened(*lines)
    assert list(log) == lines
    assert (log.lines, log.odd) == (2_000, 0)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"", ""),
        (b"id,name", "id,name"),
        (b'{"client": "192.0.2.7", "path": "/"}', '{"client": "192.0.2.7", "path": "/"}'),
        (b"Mar  2 10:05:03 host sshd[1]: Accepted", "Mar  2 10:05:03 host sshd[1]: Accepted"),
        (b"www.example.com:443 " + GOOD, f"www.example.com:443 {EXAMPLE[:60]}"),
        (
            GOOD.replace(b"[02/Mar/2026:10:05:03 +0000]", b"2026-03-02"),
            EXAMPLE.replace(EXAMPLE[14:42], "2026-03-02")[:80],
        ),
        (GOOD[:60], EXAMPLE[:60]),
        (b"\x1f\x8b\x08\x00caf\xc3\xa9", "\\x1f\\x8b\\x08\\x00caf\u00e9"),
    ],
)
def test_a_file_of_other_lines_is_refused(line: bytes, shown: str) -> None:
    with pytest.raises(OperatorError) as raised:
        opened(GOOD, line, line)
    assert str(raised.value) == (
        "a.log is not an access log in the common or combined format: 2 of its first 3 lines are not in it, such "
        "as line "
        f'2, "{shown}"; lines have to look like {EXAMPLE}'
    )


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(OperatorError, match=r"a\.log is empty; name a file with lines such as "):
        opened()


def test_few_odd_lines_are_returned_and_counted() -> None:
    lines = [b"cut off", *[GOOD] * 9, *[GOOD] * access_log.SAMPLE_LINES, *[b""] * 500]
    log = opened(*lines)
    assert list(log) == lines
    assert (log.lines, log.odd, log.first_odd) == (len(lines), 501, 1)
    with pytest.raises(OperatorError, match="1 of its first 9 lines"):
        opened(*lines[:9])


def test_a_line_without_end_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(io.RawIOBase):
        """A file longer than the limit, beyond which no byte may be read."""

        def readable(self) -> bool:
            return True

        def readline(self, size: int | None = -1) -> bytes:
            assert size == access_log.MAX_LINE_BYTES + 1
            return b"x" * size

    with pytest.raises(OperatorError, match="line 1 is longer than 1,000,000 bytes"):
        AccessLog(Endless(), "a.log")  # type: ignore[arg-type]
