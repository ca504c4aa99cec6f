"""Searches of `ottla search`: from the options to the printed matches and the report."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import click

from ottla.cli.command import counted, notify, security, size_text
from ottla.cli.record_format import format_time, json_bytes
from ottla.client.admin.cluster import Cluster
from ottla.common.control_chars import escape_control_chars
from ottla.common.errors import OperatorError, OttlaError
from ottla.search.decoders import AUTO, DECODERS, Decoded, decoder_for
from ottla.search.engine import Budget, Search
from ottla.search.parser import parse_query
from ottla.search.plan import Plan, fix_ranges, read_token
from ottla.search.report import FAILED, INTERRUPTED, Report
from ottla.search.scan import Hit
from ottla.search.scopes import BOUND_FORMS, PARTITION_FORMS, parse_bound, parse_partitions
from ottla.search.source import ClusterTopic
from ottla.search.subject import Decoders
from ottla.search.syntax import Query, Scopes

CLIENT_ID = "ottla-search"
"""Client id of its own, so that client quotas can limit searches."""
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
    with Cluster(bootstrap_server, client_id=CLIENT_ID, security=security()) as cluster:
        if token is None:
            plan, parsed, source = _new_plan(cluster, str(topic), query, choice)
        else:
            plan, parsed, source = _resumed_plan(cluster, token, choice)
        if limit is not None and token is None and parsed.scopes.limit is not None:
            raise click.UsageError("give --limit, or limit: in the query")
        progress = Progress()
        limits = Budget(parsed.scopes.limit if limit is None else limit, *budget)
        running = Search(source, plan, parsed.filter, limits, time.monotonic, progress)
        return run_search(running, Output(plan.topic, json_line if as_json else text_line, progress))


def run_search(running: Search, output: Output) -> tuple[Report, BaseException | None]:
    """Print the matches and the report, also after an interruption or an error, which is returned."""
    failure: BaseException | None = None
    try:
        output.write(running.run())
        reason = running.reason
    except (KeyboardInterrupt, OttlaError) as error:
        failure, reason = error, INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
        output.write(running.rest())
    report = running.report(reason)
    output.progress.clear()
    notify(report.sentence())
    if report.resume is not None:
        notify(f"to continue: ottla search --resume {report.resume}")
    return report, failure


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _new_plan(cluster: Cluster, topic: str, query: str, choice: dict[str, Any]) -> tuple[Plan, Query, ClusterTopic]:
    parsed = parse_query(query, _now_ms())
    scopes = _with_options(parsed.scopes, choice)
    isolation = scopes.isolation or "uncommitted"
    source = ClusterTopic(cluster, topic, isolation)
    plan = Plan(
        topic,
        query,
        fix_ranges(source, scopes),
        choice["newest_first"],
        isolation,
        Decoders(decoder_for(topic, choice["key_decoder"]), decoder_for(topic, choice["value_decoder"])),
        source.topic_id,
    )
    return plan, parsed, source


def _resumed_plan(cluster: Cluster, token: str, choice: dict[str, Any]) -> tuple[Plan, Query, ClusterTopic]:
    unwanted = [name for name, value in choice.items() if value not in (None, False, AUTO)]
    if unwanted:
        raise click.UsageError(f"the token has the query and its options: omit --{unwanted[0].replace('_', '-')}")
    plan = read_token(token)
    source = ClusterTopic(cluster, plan.topic, plan.isolation)
    if plan.topic_id != source.topic_id:
        raise OperatorError(f"topic {plan.topic!r} was deleted and created again since the token was printed")
    return plan, parse_query(plan.query, _now_ms()), source


def _with_options(scopes: Scopes, choice: dict[str, Any]) -> Scopes:
    """The scopes of the query and of the options. Raises UsageError for one that is in both."""
    now_ms = _now_ms()
    parsed: dict[str, tuple[str, Any]] = {}
    for name, option in (("start", "--from"), ("until", "--until")):
        if choice[name] is not None:
            parsed[name] = option, parse_bound(choice[name], now_ms)
    if choice["partitions"] is not None:
        parsed["partitions"] = "--partition", parse_partitions(choice["partitions"])
    if choice["isolation"] is not None:
        parsed["isolation"] = "--isolation", choice["isolation"]
    for name, (option, value) in parsed.items():
        if value is None:
            forms = PARTITION_FORMS if name == "partitions" else BOUND_FORMS
            raise click.BadParameter(f"{choice[name]!r} is not {forms}", param_hint=option)
        if getattr(scopes, name) is not None:
            raise click.UsageError(f"give {option}, or the same scope in the query")
        scopes = replace(scopes, **{name: value})
    return scopes


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
    return json.dumps(
        {
            "topic": topic,
            "partition": hit.partition,
            "offset": hit.offset,
            "timestamp": hit.timestamp,
            "timestamp_type": "LogAppendTime" if hit.is_append_time else "CreateTime",
            **_json_field("key", hit.key, hit.decoded_key),
            **_json_field("value", hit.value, hit.decoded_value),
            "headers": [{"name": name, **json_bytes("value", value)} for name, value in hit.headers],
        },
        ensure_ascii=False,
    )


def _json_field(name: str, data: bytes | None, decoded: Decoded) -> dict[str, Any]:
    found: dict[str, Any] = {**json_bytes(name, data), f"{name}_decoder": decoded.decoder}
    if decoded.failure is not None:
        found[f"{name}_failure"] = decoded.failure
    elif not DECODERS[decoded.decoder].is_verbatim:
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
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)


def _shown(data: bytes | None, decoded: Decoded | None) -> str:
    """Text, the decoded value of other decoders, or the raw bytes with the reason of a failure."""
    if data is None:
        return "null"
    if decoded is not None and decoded.failure is None and not DECODERS[decoded.decoder].is_verbatim:
        return f"{_decoded_text(decoded.value)} ({decoded.decoder})"
    text = data.decode(errors="backslashreplace")
    return text if decoded is None or decoded.failure is None else f"{text} (not {decoded.decoder}: {decoded.failure})"
