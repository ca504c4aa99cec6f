"""Searches of `ottla search`: from the options to the printed matches and the report."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import click

from ottla.cli.command import counted, notify, security, size_text
from ottla.cli.record_format import format_time, json_bytes
from ottla.cli.schema_options import SCHEMA_OPTIONS, parse_schemas
from ottla.common.control_chars import escape_control_chars
from ottla.common.errors import OttlaError
from ottla.search.decoder_names import AUTO, VERBATIM
from ottla.search.decoders import Decoded
from ottla.search.engine import Budget, Search
from ottla.search.report import Report
from ottla.search.scan import Hit
from ottla.search.scopes import BOUND_FORMS, PARTITION_FORMS, ScopeConflict, parse_bound, parse_partitions
from ottla.search.session import SearchRequest, SearchSession
from ottla.search.subject import Decoders
from ottla.search.syntax import Bound, Scopes
from ottla.search.values import json_text

TERMINAL_INTERVAL_S = 0.5
PIPE_INTERVAL_S = 10.0
"""Seconds between progress messages on standard error."""
CLEAR_LINE = "\r\x1b[K"


def find(
    bootstrap_server: str,
    topic: str | None,
    query: str,
    token: str | None,
    limit: int | None,
    budget: tuple[int | None, int | None, float | None],
    choice: dict[str, Any],
    *,
    as_json: bool,
) -> tuple[Report, BaseException | None]:
    """Run a new search, or the one of a token, and print its matches and its report.

    `budget`: records, bytes and seconds; `choice`: the other options. Returns what `run_search` returns. Raises
    UsageError, KafkaError, OperatorError.
    """
    limits = Budget(limit, *budget)
    schemas = parse_schemas({**choice, "is_resumed": token is not None})
    request = _resumed(token, choice, limits) if token is not None else _new(str(topic), query, choice, limits)
    try:
        session = SearchSession(
            bootstrap_server,
            replace(request, schemas=schemas),
            security=security(),
            processes=choice["processes"] or _core_count(),
        )
    except ScopeConflict as error:
        option = "--" + {"start": "from", "partitions": "partition"}.get(error.name, error.name)
        raise click.UsageError(f"give {option}, or the same scope in the query") from None
    with session:
        progress = Progress()
        output = Output(request.topic, json_line if as_json else text_line, progress)
        return run_search(session.search, output)


def run_search(running: Search, output: Output) -> tuple[Report, BaseException | None]:
    """Print the matches and the report, also after an interruption or an error, which is returned."""
    failure: BaseException | None = None
    running.on_progress = output.progress
    try:
        output.write(running.run())
    except (KeyboardInterrupt, OttlaError) as error:
        failure = error
        output.write(running.rest())
    report = running.report(running.reason)
    output.progress.clear()
    notify(report.sentence())
    if report.resume is not None:
        notify(f"to continue: ottla search --resume {report.resume}")
    return report, failure


def _new(topic: str, query: str, choice: dict[str, Any], budget: Budget) -> SearchRequest:
    decoders = Decoders(choice["key_decoder"], choice["value_decoder"])
    return SearchRequest(topic, query, _scopes(choice), choice["newest_first"], decoders, budget)


def _resumed(token: str, choice: dict[str, Any], budget: Budget) -> SearchRequest:
    given = {name: value for name, value in choice.items() if name not in (*SCHEMA_OPTIONS, "processes")}
    unwanted = [name for name, value in given.items() if value not in (None, False, AUTO)]
    if unwanted:
        raise click.UsageError(f"the token has the query and its options: omit --{unwanted[0].replace('_', '-')}")
    return SearchRequest.resumed(token, budget)


def _scopes(choice: dict[str, Any]) -> Scopes:
    """The scopes of the options. Raises BadParameter."""
    now_ms = time.time_ns() // 1_000_000

    def bound(name: str, option: str) -> Bound | None:
        text = choice[name]
        return None if text is None else parse_bound(text, now_ms) or _refuse(text, option, BOUND_FORMS)

    text = choice["partitions"]
    partitions = None if text is None else parse_partitions(text) or _refuse(text, "--partition", PARTITION_FORMS)
    return Scopes(bound("start", "--from"), bound("until", "--until"), partitions, None, choice["isolation"])


def _core_count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _refuse(text: str, option: str, forms: str) -> NoReturn:
    raise click.BadParameter(f"{text!r} is not {forms}", param_hint=option)


class Progress:
    """Prints progress to standard error: over one line on a terminal, as rare lines otherwise."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._interval_s = TERMINAL_INTERVAL_S if self._is_terminal else PIPE_INTERVAL_S
        self._last_s = time.monotonic()
        self._is_shown = False

    def __call__(self, report: Report) -> None:
        now_s = time.monotonic()
        if now_s - self._last_s < self._interval_s:
            return
        self._last_s = now_s
        text = f"searched {counted(report.records, 'record')}, {size_text(report.bytes)}; {report.matches:,} found"
        if self._is_terminal:
            click.echo(f"{CLEAR_LINE}ottla: {text}", err=True, nl=False)
            self._is_shown = True
        else:
            notify(text)

    def clear(self) -> None:
        """Remove the line from the terminal before other output."""
        if self._is_shown:
            click.echo(CLEAR_LINE, err=True, nl=False)
            self._is_shown = False


class Output(NamedTuple):
    """Prints matches to standard output."""

    topic: str
    format_hit: Callable[[str, Hit], str]
    progress: Progress

    def write(self, hits: Iterable[Hit]) -> None:
        for hit in hits:
            self.progress.clear()
            click.echo(self.format_hit(self.topic, hit))


def json_line(topic: str, hit: Hit) -> str:
    """A match as JSON: raw key and value as `ottla consume --json` prints them, with decoder, decoded value and
    failure."""
    return json_text(
        {
            "topic": topic,
            "partition": hit.partition,
            "offset": hit.offset,
            "timestamp": hit.timestamp,
            "timestamp_type": "LogAppendTime" if hit.is_append_time else "CreateTime",
            **_json_field("key", hit.key, hit.decoded_key),
            **_json_field("value", hit.value, hit.decoded_value),
            "headers": [{"name": name, **json_bytes("value", value)} for name, value in hit.headers],
        }
    )


def _json_field(name: str, data: bytes | None, decoded: Decoded) -> dict[str, Any]:
    found: dict[str, Any] = {**json_bytes(name, data)}
    if data is None:
        return found
    found[f"{name}_decoder"] = decoded.decoder
    if decoded.schema is not None:
        found[f"{name}_schema_id"] = decoded.schema
    if decoded.failure is not None:
        found[f"{name}_failure"] = decoded.failure
    elif decoded.decoder not in VERBATIM or decoded.schema is not None:
        found[f"{name}_decoded"] = decoded.value
    return found


def text_line(topic: str, hit: Hit) -> str:
    """A match on one line: partition:offset, time, key, value and headers, separated by tabs."""
    time_text = "-" if hit.timestamp < 0 else format_time(hit.timestamp)
    headers = ",".join(f"{name}={_shown(value, None)}" for name, value in hit.headers)
    cells = (
        f"{hit.partition}:{hit.offset}",
        time_text,
        _shown(hit.key, hit.decoded_key),
        _shown(hit.value, hit.decoded_value),
        *((headers,) if headers else ()),
    )
    return "\t".join(escape_control_chars(cell).replace("\n", "\\n").replace("\t", "\\t") for cell in cells)


def _decoded_text(value: object) -> str:
    return json_text(value) if isinstance(value, (dict, list)) else str(value)


def _shown(data: bytes | None, decoded: Decoded | None) -> str:
    """Text, the decoded value of other decoders, or the raw bytes with the reason of a failure."""
    if data is None:
        return "null"
    if decoded is not None and decoded.failure is None and decoded.decoder not in VERBATIM:
        return f"{_decoded_text(decoded.value)} ({decoded.decoder})"
    text = data.decode(errors="backslashreplace")
    return text if decoded is None or decoded.failure is None else f"{text} (not {decoded.decoder}: {decoded.failure})"
