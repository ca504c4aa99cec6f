"""The demo: an activity stream through a real broker and a stock client into a lake table, with queries on it.

Every step uses the public interfaces: `ottla start` (through `ottla.testing`), confluent-kafka,
the load of `ottla pipeline load`, Spark SQL. Each step's figures are printed. Broker and Spark are stopped in any case;
the data stays in the printed directory.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer
from rich import box
from rich.console import Console
from rich.table import Table

from ottla.cli.command import program, size_text
from ottla.client.admin.cluster import Cluster
from ottla.common.control_chars import escape_control_chars
from ottla.common.errors import InvariantError, OperatorError, OttlaError
from ottla.pipeline.load.driver import LoadSummary, load
from ottla.pipeline.model.access_log import AccessLog
from ottla.pipeline.model.events import page_views
from ottla.pipeline.model.plan import PlanSettings
from ottla.pipeline.sinks.delta import DeltaTarget
from ottla.pipeline.spark.scratch import explain_scratch_errors
from ottla.pipeline.spark.session import open_session
from ottla.pipeline.sql.query import DEFAULT_VIEW, register_tables, run_sql
from ottla.testing import Broker

TOPIC = "page-views"
PARTITIONS = 6
TOP_PAGES = 10
MAX_DAYS = 7
PIPE_WIDTH = 120
"""Width of the tables where there is no terminal."""
DELIVERY_TIMEOUT_S = 60.0
QUEUE_POLL_EVERY = 1_000

PAGES_SQL = f"""
SELECT split_part(CAST(value AS STRING), ' ', 7) AS page, count(*) AS views
FROM {DEFAULT_VIEW} GROUP BY page ORDER BY views DESC, page
"""
"""The request's path with its query: `cut -d' ' -f7 FILE | sort | uniq -c`."""

HOURS_SQL = f"""
SELECT substr(split_part(CAST(value AS STRING), ' ', 4), 2, 14) AS hour, count(*) AS views
FROM {DEFAULT_VIEW} GROUP BY hour ORDER BY try_to_timestamp(hour, 'dd/MMM/yyyy:HH'), hour
"""
"""Day and hour of the request: `cut -d' ' -f4 FILE | cut -c2-15 | sort | uniq -c`."""


HOUR = re.compile(r"\d\d/[A-Z][a-z]{2}/\d{4}:\d\d")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the figures; `size_bytes` is -1 if it is unknown."""

    name: str
    seconds: float
    rows: int = 0
    size_bytes: int = -1
    what: str = ""


def run_demo(input_path: Path | None, events: int, directory: Path | None, master: str) -> None:
    """Run all steps and print their results. Raises OttlaError when one fails, or first if the input is not a log."""
    if input_path is None:
        _run(page_views(events), None, directory, master)
        return
    with input_path.open("rb") as file:
        _run(AccessLog(file, str(input_path)), input_path, directory, master)


def _run(lines: Iterable[bytes], input_path: Path | None, directory: Path | None, master: str) -> None:
    console = _console()
    home = _home(directory)
    data_dir, target = home / "broker", DeltaTarget(home / "page_views")
    steps: list[Step] = []
    started = time.monotonic()
    with Broker(data_dir=data_dir) as broker:
        steps.append(Step("broker start", time.monotonic() - started, what=broker.bootstrap_servers))
        console.print(f"Broker on {broker.bootstrap_servers}, data in {data_dir}")
        _create_topic(broker.bootstrap_servers)
        produced = _produce(broker.bootstrap_servers, lines)
        steps.append(produced)
        console.print(
            f"Produced {produced.rows:,} records to {TOPIC} ({PARTITIONS} partitions, keyed by client address)"
        )
        if isinstance(lines, AccessLog) and lines.odd:
            console.print(
                f"{lines.odd:,} of {lines.lines:,} lines are in neither format of an access log, the first is line "
                f"{lines.first_odd:,}; they are loaded and counted unchanged."
            )
        _load_and_ask(console, broker.bootstrap_servers, target, master, produced.rows, steps)
        stopping = time.monotonic()
    steps.append(Step("broker stop", time.monotonic() - stopping))
    _print_steps(console, steps, time.monotonic() - started)
    if input_path is not None:
        path = shlex.quote(str(input_path))
        console.print(f"Compare: cut -d' ' -f7 {path} | sort | uniq -c | sort -rn | head -{TOP_PAGES}")
        console.print(f"         cut -d' ' -f4 {path} | cut -c2-15 | sort | uniq -c")
    console.print(f"Everything is stopped. The data stays in {home}:")
    table, data = shlex.quote(target.location), shlex.quote(str(data_dir))
    console.print(f'  {program()} pipeline sql "select count(*) from page_views" --table {table}')
    console.print(f"  {program()} start --data-dir {data}")


def _console() -> Console:
    """On a terminal, a stream that passes rich's own control characters through."""
    terminal = sys.stdout.isatty()
    return Console(
        file=sys.__stdout__ if terminal else sys.stdout,
        highlight=False,
        markup=False,
        soft_wrap=True,
        width=None if terminal else PIPE_WIDTH,
    )


def _home(directory: Path | None) -> Path:
    if directory is None:
        with explain_scratch_errors():
            return Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise OperatorError(f"--dir {directory} is not empty; name a new or an empty directory")
    except OSError as error:
        raise OperatorError(f"--dir {directory} can't be used: {error.strerror}") from error
    return directory.absolute()


def _create_topic(bootstrap_servers: str) -> None:
    with Cluster(bootstrap_servers, client_id="ottla-demo") as cluster:
        cluster.topics.create(TOPIC, PARTITIONS)


def _produce(bootstrap_servers: str, lines: Iterable[bytes]) -> Step:
    """Send each line as a record, with its client address as the key, through a stock client."""
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    started = time.monotonic()
    count = size_bytes = 0
    try:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "client.id": "ottla-demo",
                "compression.type": "zstd",
                "enable.idempotence": True,
                "linger.ms": 20,
                "log_level": 0,
            }
        )
        for line in lines:
            while True:
                try:
                    producer.produce(TOPIC, value=line, key=line.partition(b" ")[0], on_delivery=delivered)
                except BufferError:
                    producer.poll(0.1)
                    continue
                break
            count += 1
            size_bytes += len(line)
            if count % QUEUE_POLL_EVERY == 0:
                producer.poll(0)
        left = producer.flush(DELIVERY_TIMEOUT_S)
    except KafkaException as error:
        raise OttlaError(f"the producer failed: {error.args[0]}") from error
    if failures or left:
        reason = failures[0] if failures else f"not delivered within {DELIVERY_TIMEOUT_S:.0f} s"
        raise OttlaError(f"{len(failures) + left} of {count} records were not delivered: {reason}")
    seconds = time.monotonic() - started
    return Step("produce", seconds, count, size_bytes, "confluent-kafka, zstd; MB of values")


def _load_and_ask(
    console: Console, bootstrap_servers: str, target: DeltaTarget, master: str, expected: int, steps: list[Step]
) -> None:
    started = time.monotonic()
    with open_session(master, "ottla demo") as spark:
        steps.append(Step("Spark start", time.monotonic() - started, what=master))
        first = _load(bootstrap_servers, target, spark)
        steps.append(_load_step("load 1", first))
        if first.rows != expected:
            raise InvariantError(f"{expected} records were produced, but {first.rows} rows loaded")
        console.print(f"Loaded {first.rows:,} rows into {Path(target.location)}, version {first.version}")
        second = _load(bootstrap_servers, target, spark)
        steps.append(_load_step("load 2", second))
        with _timed(steps, "SQL", "three queries"):
            register_tables(spark, [target])
            pages = run_sql(spark, PAGES_SQL).to_pylist()
            hours = run_sql(spark, HOURS_SQL).to_pylist()
            count = run_sql(spark, f"SELECT count(*) AS n FROM {DEFAULT_VIEW}").to_pylist()[0]["n"]
    _print_pages(console, pages)
    _print_hours(console, hours)
    if second.version is not None or count != expected:
        raise InvariantError(f"the second load changed the table: {count} rows, {expected} were produced")
    console.print(f"A second load found nothing new: the table has {count:,} rows, {expected:,} were produced.")


def _load(bootstrap_servers: str, target: DeltaTarget, spark: Any) -> LoadSummary:
    return load([TOPIC], target, bootstrap_servers, lambda: nullcontext(spark), PlanSettings())


def _load_step(name: str, summary: LoadSummary) -> Step:
    seconds = summary.plan_s + summary.land_s + summary.commit_s
    what = (
        f"PySpark; {size_text(summary.fetched_bytes)} fetched, {summary.files} files"
        if summary.files
        else "nothing new"
    )
    return Step(name, seconds, summary.rows, summary.body_bytes if summary.files else -1, what)


@contextmanager
def _timed(steps: list[Step], name: str, what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    steps.append(Step(name, time.monotonic() - started, what=what))


def _print_table(console: Console, title: str, table: Table) -> None:
    """Print the title on a line of its own: inside the table it would be folded to the table's width."""
    console.print(title)
    console.print(table)


def _print_pages(console: Console, pages: list[dict[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("views", justify="right")
    table.add_column("page", overflow="fold")
    for row in pages[:TOP_PAGES]:
        page = row["page"] or "(none)"
        table.add_row(str(row["views"]), escape_control_chars(page) if console.is_terminal else page)
    _print_table(console, f"Most viewed pages, of {len(pages):,}", table)


def _print_hours(console: Console, hours: list[dict[str, Any]]) -> None:
    """One row an hour, one column a day, in the order of time."""
    counts = {row["hour"]: row["views"] for row in hours if HOUR.fullmatch(row["hour"])}
    odd = sum(row["views"] for row in hours) - sum(counts.values())
    days = list(dict.fromkeys(hour.partition(":")[0] for hour in counts))
    shown = days[-MAX_DAYS:]
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("hour")
    for day in shown:
        table.add_column(day, justify="right")
    for hour in range(24):
        cells = [counts.get(f"{day}:{hour:02}") for day in shown]
        if any(cells):
            table.add_row(f"{hour:02}", *("" if cell is None else str(cell) for cell in cells))
    title = "Views per hour" if len(shown) == len(days) else f"Views per hour, the last {MAX_DAYS} of {len(days)} days"
    _print_table(console, title, table)
    if odd:
        console.print(f"{odd:,} lines have no valid time field.")


def _print_steps(console: Console, steps: list[Step], total_s: float) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("step")
    for name in ("seconds", "rows", "rows/s", "MB", "MB/s"):
        table.add_column(name, justify="right")
    table.add_column("")
    for step in steps:
        seconds = max(step.seconds, 1e-9)
        megabyte = step.size_bytes / 1e6
        table.add_row(
            step.name,
            f"{step.seconds:.2f}",
            f"{step.rows:,}" if step.rows else "",
            f"{step.rows / seconds:,.0f}" if step.rows else "",
            f"{megabyte:,.1f}" if step.size_bytes >= 0 else "",
            f"{megabyte / seconds:,.1f}" if step.size_bytes >= 0 else "",
            step.what,
        )
    table.add_row("all", f"{total_s:.2f}", "", "", "", "", "")
    _print_table(console, "Figures", table)
