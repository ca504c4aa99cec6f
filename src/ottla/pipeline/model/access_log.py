"""Reader for access logs of Apache and nginx: one pass, line by line, so that the input can be a pipe.

The first lines are a sample: a file is refused when more than one in ten of them is in neither format. Later lines in
neither format (a line cut off by a crash, say) are returned unchanged and counted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import BinaryIO

from ottla.common.control_chars import escape_control_chars
from ottla.common.errors import OperatorError

SAMPLE_LINES = 1_000
ODD_ONE_IN = 10
MAX_LINE_BYTES = 1_000_000
"""A line is a record; a longer line does not fit in one and is not a request."""
MAX_SHOWN_BYTES = 80

_QUOTED = r'[^"\\]*(?:\\.[^"\\]*)*'
"""Text between quotes; a quote inside it is escaped."""
LINE_PATTERN = (
    r"(?s:(?P<client>\S+) (?P<identity>\S+) (?P<user>\S+) "
    r"\[(?P<day>\d\d)/(?P<month>[A-Z][a-z]{2})/(?P<year>\d{4}):(?P<clock>\d\d:\d\d:\d\d) (?P<zone>[+-]\d{4})\] "
    rf'"(?:(?P<method>[A-Z]+) (?P<path>{_QUOTED}) (?P<protocol>HTTP/[0-9.]+)|{_QUOTED})" '
    r"(?P<status>\d{3}) (?P<bytes>\d+|-)"
    rf'(?:[ \t]+"(?P<referer>{_QUOTED})"[ \t]+"(?P<agent>{_QUOTED})"(?:[ \t].*)?'  # the combined format
    r'|[ \t]+[^"\s].*|)'  # fields added by a server; a quoted text other than referer and agent is a dead letter
    r"\s*)"
)
"""One line of either format without its end, in the syntax that Python's `re` and RE2 share; to be matched whole."""
_LINE = re.compile(LINE_PATTERN.encode())
EXAMPLE = '192.0.2.7 - - [02/Mar/2026:10:05:03 +0000] "GET /page HTTP/1.1" 200 1234 "http://referer/" "agent"'


class AccessLog:
    """The lines of one file; `odd` of those read so far are in neither format, `first_odd` is the number of the
    first."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """Read the sample. Raises OperatorError when the file is empty or is not an access log."""
        self.lines = self.odd = self.first_odd = 0
        self._name = name
        self._read = self._checked_lines(file)
        self._sample = list(itertools.islice(self._read, SAMPLE_LINES))
        if not self._sample:
            raise OperatorError(f"{name} is empty; name a file with lines such as {EXAMPLE}")
        if self.odd * ODD_ONE_IN > len(self._sample):
            line = self._sample[self.first_odd - 1]
            shown = escape_control_chars(line[:MAX_SHOWN_BYTES].decode("utf-8", "backslashreplace"))
            raise OperatorError(
                f"{name} is not an access log in the common or combined format: {self.odd:,} of its first "
                f'{len(self._sample):,} lines are not in it, such as line {self.first_odd}, "{shown}"; lines have to '
                f"look like {EXAMPLE}"
            )

    def __iter__(self) -> Iterator[bytes]:
        """Every line without its line end, the empty and the odd ones too; once. Raises OperatorError as well."""
        return itertools.chain(self._sample, self._read)

    def _checked_lines(self, file: BinaryIO) -> Iterator[bytes]:
        while line := file.readline(MAX_LINE_BYTES + 1):
            self.lines += 1
            if len(line) > MAX_LINE_BYTES:
                raise OperatorError(
                    f"{self._name} is not an access log: line {self.lines:,} is longer than {MAX_LINE_BYTES:,} bytes; "
                    f"lines have to look like {EXAMPLE}"
                )
            line = line.removesuffix(b"\n")
            if _LINE.fullmatch(line) is None:
                self.odd += 1
                self.first_odd = self.first_odd or self.lines
            yield line
