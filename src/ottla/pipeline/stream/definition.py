"""Definition of a stream in a TOML file: sources, a query, a result. Checked before anything is started.

Input files of a definition (schemas, Python files) are relative to it; output paths are relative to the working
directory, as `--table` of other commands. docs/guides/pipeline-streams.md lists every key.

**Invariant:** every error in a definition is reported in one sentence that names the file and the key, and no key is
ignored: a misspelled key is refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_file
from ottla.common.suggestion import did_you_mean
from ottla.pipeline.model.nesting import require_shallow
from ottla.pipeline.sinks.formats import TABLE_FORMATS
from ottla.pipeline.transform.decode_options import ENVELOPES, FORMATS, DecodeOptions

MAX_FILE_BYTES = 1 << 20
MAX_SOURCES = 64
OUTPUTS = ("append", "update", "complete")
STARTS = ("earliest", "latest")
RESULT_VIEW = "result"
DEFAULT_TRIGGER = "10 seconds"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_DURATION = re.compile(
    r"\d{1,9} (?:microsecond|millisecond|second|minute|hour|day|week)s?"
    r"(?: \d{1,9} (?:microsecond|millisecond|second|minute|hour|day|week)s?)*"
)
_PYTHON = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)")

_TOP_KEYS = ("name", "trigger", "sources", "query", "result")
_SOURCE_KEYS = (
    *("topic", "topics", "topic_pattern", "decode", "schema", "pattern", "message", "schema_registry"),
    *("envelope", "event_time", "watermark", "deduplicate", "from", "max_records", "on_data_loss", "isolation"),
)
_QUERY_KEYS = ("sql", "python", "output")
_RESULT_KEYS = ("table", "format", "catalog", "partition_by", "keys", "topic", "key", "sql")


@dataclass(frozen=True, slots=True)
class SourceDefinition:
    """One view: the decoded records of some topics. `watermark` is a duration in Spark's notation, "" for none."""

    topics: tuple[str, ...]
    topic_pattern: str
    decode: DecodeOptions
    event_time: str = "timestamp"
    """A column of the view, or an SQL expression over its columns; its value becomes the column `event_time`."""
    watermark: str = ""
    deduplicate: tuple[str, ...] = ()
    start: str = "earliest"
    max_records: int | None = None
    """Maximum offsets of a batch."""
    on_data_loss: str = "fail"
    isolation: str = "read_committed"


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """SQL over the views, or a function of a Python file that takes them and returns a DataFrame."""

    sql: str = ""
    file: Path | None = None
    function: str = ""
    output: str = "append"


@dataclass(frozen=True, slots=True)
class ResultDefinition:
    """Target of the rows: `table` or `topic` is set. `sql`: a statement over `result`, the rows of a batch."""

    table: str = ""
    format: str | None = None
    catalog: str | None = None
    partition_by: tuple[str, ...] = ()
    """For a table that the stream creates."""
    keys: tuple[str, ...] = ()
    topic: str = ""
    key: str = ""
    sql: str = ""


@dataclass(frozen=True, slots=True)
class StreamDefinition:
    """A whole file. `trigger` is the time between the starts of two batches, in Spark's notation."""

    name: str
    sources: Mapping[str, SourceDefinition]
    query: QueryDefinition
    result: ResultDefinition
    trigger: str = DEFAULT_TRIGGER


def read_definition(path: Path) -> StreamDefinition:
    """The definition in a file. Raises OperatorError."""
    try:
        data = read_file(str(path), MAX_FILE_BYTES)
    except OSError as error:
        raise OperatorError(f"the definition {path} can't be read: {error.strerror}") from error
    try:
        return parse_definition(data.decode(), path.parent)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise OperatorError(f"the definition {path} is not valid TOML: {error}") from error
    except OperatorError as error:
        raise OperatorError(f"the definition {path}: {error}") from error


def parse_definition(text: str, directory: Path) -> StreamDefinition:
    """Parse a definition with files relative to `directory`. Raises OperatorError, TOMLDecodeError."""
    top = _Section("", tomllib.loads(text), _TOP_KEYS)
    name = top.text("name", needed='name identifies the stream; set it, as in name = "news-feed"')
    if not _NAME.fullmatch(name):
        top.refuse("name", "must be 1 to 100 letters, digits, '.', '_' or '-', the first a letter or digit")
    sources = top.table("sources", 'define at least one source, such as [sources.views] with topic = "views"')
    if len(sources) > MAX_SOURCES:
        top.refuse("sources", f"has more than {MAX_SOURCES} views")
    query = _query(top.section("query", _QUERY_KEYS, "[query] is missing; set sql or python in it"), directory)
    result = _result(top.section("result", _RESULT_KEYS, "[result] is missing; set table or topic in it"), query)
    views = {view: _source(top, view, found, directory) for view, found in sources.items()}
    if any(result.topic and result.topic in source.topics for source in views.values()):
        raise OperatorError(
            f"[result] topic = {result.topic!r} is read by a source as well: the stream would feed itself"
        )
    return StreamDefinition(name, views, query, result, top.duration("trigger") or DEFAULT_TRIGGER)


def _source(top: _Section, view: str, found: Any, directory: Path) -> SourceDefinition:
    if not _VIEW.fullmatch(view):
        raise OperatorError(f"[sources.{view}]: use letters, digits and '_' in a view's name, since SQL refers to it")
    if view.lower() == RESULT_VIEW:
        raise OperatorError(
            f"[sources.{view}]: {RESULT_VIEW} is the view of a batch's rows in [result] sql; choose another"
        )
    if not isinstance(found, dict):
        raise OperatorError(f'sources.{view} must be a section [sources.{view}] with topic = "..."')
    section = _Section(f"sources.{view}", found, _SOURCE_KEYS)
    given = [key for key in ("topic", "topics", "topic_pattern") if key in found]
    if len(given) != 1:
        raise OperatorError(f"[sources.{view}] needs exactly one of topic, topics and topic_pattern")
    topics = section.texts("topics") or tuple(filter(None, [section.text("topic")]))
    for topic in topics:
        if "," in topic or topic != topic.strip():
            section.refuse(given[0], f'{topic!r} is not a topic name; write several as topics = ["a", "b"]')
    schema = section.text("schema")
    decode = DecodeOptions(
        section.choice("decode", FORMATS, "raw"),
        schema=directory / schema if schema else None,
        pattern=section.text("pattern") or None,
        message=section.text("message") or None,
        schema_registry=section.text("schema_registry") or None,
        envelope=section.choice("envelope", ENVELOPES, "") or None,
    )
    watermark, deduplicate = section.duration("watermark"), section.texts("deduplicate")
    if deduplicate and not watermark:
        section.refuse("deduplicate", "needs a watermark, which sets how long an id is remembered")
    return SourceDefinition(
        topics,
        section.text("topic_pattern"),
        decode,
        section.text("event_time") or "timestamp",
        watermark,
        deduplicate,
        section.choice("from", STARTS, "earliest"),
        section.count("max_records"),
        section.choice("on_data_loss", ("fail", "skip"), "fail"),
        section.choice("isolation", ("read_committed", "read_uncommitted"), "read_committed"),
    )


def _query(section: _Section, directory: Path) -> QueryDefinition:
    sql, python = section.text("sql"), section.text("python")
    if bool(sql) == bool(python):
        raise OperatorError("[query] needs exactly one of sql and python")
    output = section.choice("output", OUTPUTS, "append")
    if sql:
        require_shallow(sql, "[query] sql")
        return QueryDefinition(sql.strip().removesuffix(";"), output=output)
    named = _PYTHON.fullmatch(python)
    if named is None:
        section.refuse("python", 'is of the form "file.py:function"')
    return QueryDefinition("", directory / named["file"], named["function"], output)


def _result(section: _Section, query: QueryDefinition) -> ResultDefinition:
    table, topic = section.text("table"), section.text("topic")
    if bool(table) == bool(topic):
        raise OperatorError("[result] needs exactly one of table and topic")
    for key in ("key",) if table else ("format", "catalog", "partition_by", "keys"):
        if section.has(key):
            section.refuse(key, f"has no effect with a {'table' if table else 'topic'}; remove it")
    keys, catalog = section.texts("keys"), section.text("catalog") or None
    if table and (query.output == "update") != bool(keys):
        if keys:
            section.refuse("keys", 'applies to output = "update" only, where it identifies the row to replace')
        raise OperatorError(
            '[result] keys is missing: with output = "update" a row replaces the earlier row with the same values in '
            "these columns"
        )
    if topic and query.output == "complete":
        raise OperatorError(
            '[query] output = "complete" returns the whole result for each batch, and a topic can\'t drop the previous '
            'one; use output = "update", which returns the changed rows'
        )
    format_ = section.choice("format", TABLE_FORMATS, "") or None
    if catalog is not None and format_ not in (None, "iceberg"):
        section.refuse("format", "a catalog contains Iceberg tables; remove format")
    sql = section.text("sql").strip().removesuffix(";")
    require_shallow(sql, "[result] sql")
    partition_by = section.texts("partition_by")
    return ResultDefinition(table, format_, catalog, partition_by, keys, topic, section.text("key"), sql)


class _Section:
    """One section of the file, with its allowed keys."""

    def __init__(self, path: str, found: Mapping[str, Any], known: Sequence[str]) -> None:
        self._path = path
        self._found = found
        for key in found:
            if key not in known:
                where = f"[{path}] has" if path else "there is"
                raise OperatorError(f"{where} no key {key!r}{did_you_mean(key, known)}")

    def refuse(self, key: str, why: str) -> NoReturn:
        raise OperatorError(f"[{self._path}] {key}: {why}" if self._path else f"{key}: {why}")

    def has(self, key: str) -> bool:
        return key in self._found

    def table(self, key: str, needed: str) -> Mapping[str, Any]:
        value = self._found.get(key)
        if not isinstance(value, dict) or not value:
            raise OperatorError(f"{key} is missing: {needed}")
        return value

    def section(self, key: str, known: Sequence[str], needed: str) -> _Section:
        return _Section(key, self.table(key, needed), known)

    def text(self, key: str, needed: str = "") -> str:
        value = self._found.get(key, "")
        if not isinstance(value, str):
            self.refuse(key, f"must be a text in quotes, not {value!r}"[:200])
        if needed and not value:
            raise OperatorError(f"{key} is missing: {needed}")
        if self.has(key) and not value.strip():
            self.refuse(key, "is empty")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._found.get(key, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
            self.refuse(key, 'must be a list of texts, such as ["a", "b"]')
        if self.has(key) and not value:
            self.refuse(key, "is empty")
        return tuple(dict.fromkeys(value))

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        value = self.text(key) or default
        if self.has(key) and value not in choices:
            self.refuse(key, f"is one of {', '.join(choices)}, not {value!r}{did_you_mean(value, choices)}")
        return value

    def count(self, key: str) -> int | None:
        value = self._found.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 63):
            self.refuse(key, f"must be a number from 1 on, not {value!r}"[:200])
        return value

    def duration(self, key: str) -> str:
        """In one form of Spark's interval notation."""
        value = self.text(key)
        if value and not _DURATION.fullmatch(value):
            self.refuse(key, f'is a time such as "10 minutes" or "1 hour 30 minutes", not {value!r}')
        return value
