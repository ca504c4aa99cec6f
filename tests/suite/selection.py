"""Which test files run: the short form of `make test`, and the additions of .ci/run.

    python -m tests.suite.selection short tests             files of `make test`
    python -m tests.suite.selection rest compat --limit 600  files that a change touches, and the sixth of the day
    python -m tests.suite.selection record report.xml ...   record durations of files from reports of pytest

The short form has all unit tests and, of each family of integration tests, the representatives below. The rest is
ordered: the sixth of the day (so every file runs at least every sixth day), test files that the change edits, then the
files that depend on changed files, by distance (`dependencies.distances_to`). Files are chosen in this order while
their recorded durations fit the limit.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from .dependencies import ROOT, Steps, dependencies, distances_to, source_files

DURATIONS = Path(__file__).with_name("durations.json")
UNKNOWN_S = 30.0
"""Duration that is assumed for files without a record."""
PARTS = 6
EVERYTHING = {"pyproject.toml", "constraints.txt", "setup.py", "Makefile", "conftest.py", ".ci/run"}
"""Files that all tests depend on."""

NOT_UNIT = frozenset(
    ["app", "bench", "chaos", "cli", "clients", "cluster", "faults", "fuzz", "modes", "pipeline", "sim", "web"]
)
"""Directories of tests/ whose tests need processes, clients, Spark, root or minutes: the families."""

REPRESENTATIVES: Mapping[str, tuple[str, ...]] = {
    "tests": (
        "tests/app/test_local_cluster.py",
        "tests/app/test_main.py",
        "tests/app/test_recover.py",
        "tests/app/test_settings.py",
        "tests/app/test_start.py",
        "tests/bench/test_report.py",
        "tests/chaos/test_parts.py",
        "tests/cli/test_commands.py",
        "tests/cli/test_consume.py",
        "tests/cli/test_group.py",
        "tests/cli/test_produce_lines.py",
        "tests/clients/test_api_consumer.py",
        "tests/clients/test_api_producer.py",
        "tests/clients/test_groups.py",
        "tests/clients/test_transactions.py",
        "tests/cluster/test_replicas.py",
        "tests/cluster/test_three_nodes.py",
        "tests/cluster/test_transactions.py",
        "tests/faults/test_crash.py",
        "tests/faults/test_exactly_once.py",
        "tests/faults/test_operator_mistakes.py",
        "tests/faults/test_wrong_directory.py",
        "tests/fuzz/test_dispatcher.py",
        "tests/fuzz/test_readers.py",
        "tests/fuzz/test_sockets.py",
        "tests/modes/test_modes.py",
        "tests/pipeline/datasource/test_options.py",
        "tests/pipeline/sinks/test_delta.py",
        "tests/pipeline/sinks/test_durable_commits.py",
        "tests/pipeline/sinks/test_iceberg.py",
        "tests/pipeline/snapshot/test_topics.py",
        "tests/pipeline/sources/test_segments.py",
        "tests/pipeline/stream/test_queries.py",
        "tests/pipeline/test_cli.py",
        "tests/pipeline/test_decode.py",
        "tests/pipeline/test_demo.py",
        "tests/pipeline/test_land.py",
        "tests/pipeline/test_leases.py",
        "tests/pipeline/test_load.py",
        "tests/pipeline/test_local_pool.py",
        "tests/pipeline/test_plan.py",
        "tests/pipeline/test_topic_sink.py",
        "tests/pipeline/transform/test_csv_decoder.py",
        "tests/pipeline/transform/test_json_decoder.py",
        "tests/sim/test_history.py",
        "tests/sim/test_world.py",
        "tests/web/test_browser.py",
        "tests/web/test_openid.py",
        "tests/web/test_rights.py",
    ),
    "compat": (
        "compat/go/test_go.py",
        "compat/iceberg/test_rest_catalog.py",
        "compat/java/test_clients.py",
        "compat/java/test_differential.py",
        "compat/java/test_tools.py",
        "compat/java/test_transactions.py",
        "compat/java/test_zookeeper_broker.py",
        "compat/kafkajs/test_kafkajs.py",
        "compat/kcat/test_kcat.py",
        "compat/older/test_older.py",
        "compat/prometheus/test_prometheus.py",
        "compat/quixstreams/test_quixstreams.py",
        "compat/registry/test_registry.py",
        "compat/spark/test_connector.py",
        "compat/test_secured_clients.py",
    ),
}
"""At least one file of each directory that is not a unit test's."""


def test_files(family: str) -> list[str]:
    """All test files of tests/ or compat/."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / family).rglob("test_*.py"))


def short_form(family: str, files: Iterable[str]) -> list[str]:
    """Unit tests and representatives."""
    chosen = set(REPRESENTATIVES[family])
    return [path for path in files if path in chosen or (family == "tests" and path.split("/")[1] not in NOT_UNIT)]


def recorded() -> dict[str, float]:
    """Seconds of each file in the last recorded run."""
    return dict(json.loads(DURATIONS.read_text()))


def sixths(files: Iterable[str], durations: Mapping[str, float]) -> list[list[str]]:
    """Six sets of files of about equal duration: the longest first, each into the set that is shortest so far."""
    sets: list[list[str]] = [[] for _ in range(PARTS)]
    totals = [0.0] * PARTS
    for path in sorted(files, key=lambda path: (-durations.get(path, UNKNOWN_S), path)):
        place = totals.index(min(totals))
        sets[place].append(path)
        totals[place] += durations.get(path, UNKNOWN_S)
    return sets


class Selection(NamedTuple):
    """Chosen files with their reason, and touched files without place in the limit."""

    chosen: dict[str, str]
    left_out: dict[str, str]
    seconds: float


def select(
    files: Iterable[str], durations: Mapping[str, float], distances: Mapping[str, int], today: int, limit_s: float
) -> Selection:
    """Choose from files beside the short form; `today` is a day number, `limit_s` is the sum of the durations."""
    daily = set(sixths(files, durations)[today % PARTS])
    reasons: dict[str, tuple[int, str]] = {}
    for path in files:
        distance = distances.get(path)
        if path in daily:
            reasons[path] = (0, "sixth of the day")
        elif distance == 0:
            reasons[path] = (1, "changed")
        elif distance is not None:
            reasons[path] = (1 + distance, f"depends on the change, distance {distance}")
    chosen: dict[str, str] = {}
    left_out: dict[str, str] = {}
    seconds = 0.0
    for path in sorted(reasons, key=lambda path: (reasons[path][0], durations.get(path, UNKNOWN_S), path)):
        needed = durations.get(path, UNKNOWN_S)
        if seconds + needed <= limit_s:
            chosen[path] = reasons[path][1]
            seconds += needed
        else:
            left_out[path] = reasons[path][1]
    return Selection(chosen, left_out, seconds)


def touched(changed: Iterable[str], steps: Steps, texts: Mapping[str, str]) -> dict[str, int]:
    """Distance of each file to the change. A changed file that is not Python counts for the tests that name it.

    A change of a file in EVERYTHING touches all tests, as the farthest.
    """
    start: set[str] = set()
    for path in changed:
        if path in steps:
            start.add(path)
        else:
            name = path.rpartition("/")[2]
            start |= {test for test, text in texts.items() if name in text}
    found = distances_to(start, steps)
    if EVERYTHING & set(changed):
        farthest = max(found.values(), default=0) + 1
        found |= {test: farthest for test in texts if test not in found}
    return found


def git(*arguments: str) -> str:
    """Output of git in the repository; empty if it fails."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def changed_files(base: str) -> list[str]:
    """Paths that differ from `base`; without one, from the commit that is a day older than the newest.

    All tests count as touched if there is no such commit, as in a shallow clone.
    """
    if not base:
        newest = int(git("log", "-1", "--format=%ct") or 0)
        base = git("rev-list", "-1", f"--before={newest - 86_400}", "HEAD")
    return git("diff", "--name-only", base).splitlines() if base else [*EVERYTHING]


def durations_in(reports: Iterable[Path]) -> dict[str, float]:
    """Seconds of each test file in reports of pytest (--junit-xml)."""
    found: dict[str, float] = defaultdict(float)
    for report in reports:
        for case in ET.parse(report).iter("testcase"):
            parts = (case.get("classname") or "").split(".")
            while parts and not (ROOT / ("/".join(parts) + ".py")).exists():
                parts.pop()
            if parts:
                found["/".join(parts) + ".py"] += float(case.get("time") or 0)
    return found


def record(reports: Iterable[Path]) -> None:
    """Write the durations of the reports over those that are recorded; files that are gone are removed."""
    known = (recorded() if DURATIONS.exists() else {}) | durations_in(reports)
    kept = {path: round(seconds, 1) for path, seconds in sorted(known.items()) if (ROOT / path).exists()}
    lines = [f"{json.dumps(path)}: {seconds}" for path, seconds in kept.items()]
    DURATIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def rest(family: str, base: str, today: int, limit_s: float) -> Selection:
    """What .ci/run adds to the short form of a family."""
    files = test_files(family)
    others = sorted(set(files) - set(short_form(family, files)))
    paths = source_files()
    texts = {path: (ROOT / path).read_text() for path in others}
    return select(others, recorded(), touched(changed_files(base), dependencies(paths), texts), today, limit_s)


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite.selection", description=__doc__)
    parser.add_argument("what", choices=["short", "rest", "record"])
    parser.add_argument("names", nargs="+", help="tests or compat; reports for record")
    parser.add_argument("--base", default="", help="revision to compare with; default: the commit a day before")
    parser.add_argument("--day", type=int, default=int(time.time() // 86_400), help="day number; default: today")
    parser.add_argument("--limit", type=float, default=600, help="seconds of all workers together")
    options = parser.parse_args(arguments)
    if options.what == "record":
        record(map(Path, options.names))
        return 0
    for family in options.names:
        if options.what == "short":
            print("\n".join(short_form(family, test_files(family))))
        else:
            selection = rest(family, options.base, options.day, options.limit)
            print("".join(f"{path}\n" for path in selection.chosen), end="")
            print(report(family, selection), file=sys.stderr)
    return 0


def report(family: str, selection: Selection) -> str:
    """One line for the closing table, and one for each touched file that is left out."""
    reasons: dict[str, int] = defaultdict(int)
    for reason in selection.chosen.values():
        reasons[re.sub(r", distance \d+", "", reason)] += 1
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items())) or "nothing"
    lines = [f"{family}: {len(selection.chosen)} files beside the short form, {selection.seconds:.0f} s: {why}"]
    lines += [f"NOT RUN {path}: {reason}" for path, reason in sorted(selection.left_out.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
