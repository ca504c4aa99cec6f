"""The format of values that the options of a command mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from ottla.common.errors import OperatorError
from ottla.pipeline.transform.decode_options import DecodeOptions
from ottla.pipeline.transform.schema_file import read_struct_type
from ottla.pipeline.transform.value_format import AccessLogFormat, CsvFormat, JsonFormat, RegexFormat, ValueFormat


def open_format(options: DecodeOptions) -> ValueFormat | None:
    """None for `raw`: values stay as they are. Raises OperatorError for options that don't go together."""
    open_one, taken = _FORMATS[options.decode]
    for name in ("schema", "pattern"):
        if getattr(options, name) is not None and name not in taken:
            users = [decode for decode, (_, options_) in _FORMATS.items() if name in options_]
            raise OperatorError(
                f"--{name} says nothing with --decode {options.decode}; it goes with --decode {' or '.join(users)}"
            )
    return open_one(options)


def _open_json(options: DecodeOptions) -> ValueFormat:
    return JsonFormat(read_struct_type(options.schema) if options.schema else None)


def _open_csv(options: DecodeOptions) -> ValueFormat:
    return CsvFormat(read_struct_type(options.schema) if options.schema else None)


def _open_regex(options: DecodeOptions) -> ValueFormat:
    if options.pattern is None:
        raise OperatorError("--decode regex takes its columns from the named groups of --pattern REGEX; give one")
    found = RegexFormat(options.pattern, read_struct_type(options.schema) if options.schema else None)
    found.decoder(found.fields(pa.schema([]), {}))  # a wrong pattern is told before anything is read
    return found


_FORMATS: Mapping[str, tuple[Callable[[DecodeOptions], ValueFormat | None], frozenset[str]]] = {
    "raw": (lambda _options: None, frozenset()),
    "json": (_open_json, frozenset({"schema"})),
    "csv": (_open_csv, frozenset({"schema"})),
    "regex": (_open_regex, frozenset({"schema", "pattern"})),
    "access-log": (lambda _options: AccessLogFormat(), frozenset()),
}
