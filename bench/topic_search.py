"""CPU of `ottla search` beside `kcat | grep` and `kcat | jq` over the same records, in alternation.

python bench/topic_search.py [--records 10000000] [--partitions 4] [--codec none] [--rounds 3] [--processes 1]
                             [--peer kafka]

The records are JSON of about 1 KB with a few needles. Cases: `word` (a word that is in the needles), `field` (a
comparison that matches the needles), `recent` (the same word in the newest 1 %, by time). Both sides have to find the
same number of records. CPU is that of the tools with their children, without the broker: records a CPU second is
records a second and core. A missing tool is reported and its rows are skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from confluent_kafka import Producer
from harness.conditions import conditions
from harness.load import create_topic
from harness.output import add_output, write_result
from harness.peers import PEERS, Server
from harness.report import spread

TOPIC = "searched"
FIRST_MS = 1_700_000_000_000
NEEDLE = "needle"
NEEDLE_ID = 424_242_424
NEEDLES = 20
WORDS = 2_000
RECENT_PART = 100
OTTLA = f"{shlex.quote(sys.executable)} -m ottla search {TOPIC}"


class Run(NamedTuple):
    """One run of one tool."""

    case: str
    tool: str
    round: int
    seconds: float
    cpu_s: float
    matches: int


def documents(count: int) -> Iterator[bytes]:
    """JSON values of about 1 KB; every `count // NEEDLES`-th one is a needle."""
    rng = random.Random(11)
    words = ["".join(rng.choice("abcdefgh") for _ in range(8)) for _ in range(WORDS)]
    texts = [" ".join(rng.choices(words, k=88)) for _ in range(WORDS)]
    every = max(1, count // NEEDLES)
    for number in range(count):
        is_needle = number % every == every - 1
        user = NEEDLE_ID if is_needle else rng.randrange(100_000)
        document = {
            "id": number,
            "user": {"id": user, "name": words[number % WORDS]},
            "price": number % 10_000 / 100,
            "tags": [words[(number + each) % WORDS] for each in range(4)],
            "text": texts[number % WORDS] + (f" {NEEDLE}" if is_needle else ""),
        }
        yield json.dumps(document).encode()


def fill(server: Server, arguments: argparse.Namespace) -> None:
    create_topic(server, TOPIC, arguments.partitions)
    producer = Producer({
        "bootstrap.servers": server.bootstrap_servers,
        "compression.type": arguments.codec,
        "linger.ms": 50,
        "batch.size": arguments.batch_bytes,
        "queue.buffering.max.kbytes": 1 << 20,
    })  # fmt: skip
    for number, value in enumerate(documents(arguments.records)):
        partition = number // 1_000 % arguments.partitions
        while True:
            try:
                producer.produce(TOPIC, value, partition=partition, timestamp=FIRST_MS + number)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush()


def commands(servers: str, arguments: argparse.Namespace) -> dict[str, dict[str, str]]:
    """Case -> tool -> command of a shell that prints one line for each match."""
    recent_ms = FIRST_MS + arguments.records - arguments.records // RECENT_PART
    kcat = f"kcat -b {servers} -C -t {TOPIC} -e -q"
    ottla = f"{OTTLA} -b {servers} --processes {arguments.processes}"
    return {
        "word": {
            "ottla search": f"{ottla} {NEEDLE}",
            "kcat | grep": f"{kcat} -o beginning | LC_ALL=C grep -F {NEEDLE}",
        },
        "field": {
            "ottla search": f"{ottla} 'value.user.id == {NEEDLE_ID}'",
            "kcat | jq": f"{kcat} -o beginning | jq -c 'select(.user.id == {NEEDLE_ID})'",
        },
        "recent": {
            "ottla search": f"{ottla} {NEEDLE} --from {ottla_time(recent_ms)}",
            "kcat | grep": f"{kcat} -o beginning | LC_ALL=C grep -F {NEEDLE}",
            "kcat -o s@ | grep": f"{kcat} -o s@{recent_ms} | LC_ALL=C grep -F {NEEDLE}",
        },
    }


def ottla_time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat()


def measured(case: str, tool: str, number: int, command: str) -> Run:
    """Run a command and read the CPU time of it and its children."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    result = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    if result.returncode not in (0, 1):  # grep without a match ends with 1
        raise RuntimeError(f"{command}: {result.stderr.decode()}")
    return Run(case, tool, number, seconds, cpu_s, len(result.stdout.splitlines()))


def missing_tools() -> set[str]:
    """Tools whose rows are skipped, after a notice."""
    absent = {tool for tool in ("kcat", "jq", "grep") if shutil.which(tool) is None}
    for tool in sorted(absent):
        print(f"SKIPPED: {tool} is not installed, so there are no rows of it", file=sys.stderr, flush=True)
    return absent


def compare(servers: str, arguments: argparse.Namespace) -> list[Run]:
    absent, runs = missing_tools(), []
    for number in range(arguments.rounds):
        for case, tools in commands(servers, arguments).items():
            for tool, command in tools.items():
                if not absent & set(tool.replace("|", " ").split()):
                    runs.append(measured(case, tool, number, command))
                    print(json.dumps(runs[-1]._asdict()), flush=True)
    return runs


def summary(runs: list[Run], records: int) -> list[dict[str, Any]]:
    """A row for each case and tool; `records a CPU second` counts all records of the topic."""
    rows = []
    for case, tool in dict.fromkeys((run.case, run.tool) for run in runs):
        found = [run for run in runs if (run.case, run.tool) == (case, tool)]
        rows.append({
            "case": case,
            "tool": tool,
            "cpu_s": spread([run.cpu_s for run in found]),
            "seconds": spread([run.seconds for run in found]),
            "records_a_cpu_second": round(records / min(run.cpu_s for run in found)),
            "matches": sorted({run.matches for run in found}),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--codec", default="none", help="compression of the records (default: %(default)s)")
    parser.add_argument("--batch-bytes", type=int, default=1_000_000, help="batch.size (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="of ottla search (default: all cores)")
    parser.add_argument("--peer", choices=[*PEERS], default="ottla", help="the broker (default: %(default)s)")
    add_output(parser, "search")
    arguments = parser.parse_args()
    with PEERS[arguments.peer](arguments.peer, {"log.retention.ms": -1}) as server:
        fill(server, arguments)
        runs = compare(server.bootstrap_servers, arguments)
    rows = summary(runs, arguments.records)
    for row in rows:
        print(json.dumps(row), flush=True)
    chosen = {name: value for name, value in vars(arguments).items() if name != "output"}
    write_result(arguments.output, {"conditions": conditions(), "arguments": chosen, "rows": rows})


if __name__ == "__main__":
    main()
