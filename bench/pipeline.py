"""A topic into Parquet files: `ottla pipeline load` on Spark and on its local engine, the source `ottla`, and Spark's
own Kafka connector.

python bench/pipeline.py [--records 10000000] [--rounds 3] [--ways load,local,ottla,connector]

All read the same topic of one Ottla broker, in alternation, into files compressed with zstd. Each of Spark's ways uses
a separate session with the same heap and cores; the connector uses the pyspark version that it requires. The rows in
the files are counted. Figures include all processes of a way (the driver, its JVM, the Python workers), from the start
of the driver and from the start of the session. Memory is the maximum observed sum of proportional set sizes.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.conditions import conditions
from harness.output import add_output, write_result
from harness.peers import PEERS, Server
from harness.plots import draw_bars
from harness.processes import Usage, proportional_mb, usage
from harness.records import Sent, half_random, send_all
from harness.spark import CONNECTOR, LOCAL, conf, present, program

from ottla.client.admin.cluster import Cluster

TOPIC = "records"
WAYS = ("load", LOCAL, "ottla", CONNECTOR)
LIMIT_S = 3600.0
SAMPLE_S = 0.25
POOL_BYTES = 1 << 20


def produce(server: Server, records: int, size_bytes: int, partitions: int, codec: str) -> None:
    """Produce records of one size, half of each random, evenly over all partitions."""
    with Cluster(server.bootstrap_servers) as cluster:
        cluster.topics.create(TOPIC, partitions)
    pool, half = random.Random(1).randbytes(POOL_BYTES), size_bytes // 2
    settings = {"bootstrap.servers": server.bootstrap_servers, "compression.type": codec, "linger.ms": 20}
    sent = (
        Sent(number % partitions, half_random(number, size_bytes, pool, number * 97 % (POOL_BYTES - half)))
        for number in range(records)
    )
    send_all({**settings, "batch.size": 1 << 20, "queue.buffering.max.messages": 200_000}, TOPIC, sent, LIMIT_S)


class Peak(threading.Thread):
    """The maximum memory of a process and its children, sampled four times a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.mb = 0.0
        self._pid = pid
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            self.mb = max(self.mb, proportional_mb(self._pid))

    def stop(self) -> float:
        self._over.set()
        self.join()
        return self.mb


def measured(way: str, server: Server, arguments: argparse.Namespace) -> dict[str, float]:
    """Run once; raises RuntimeError when it fails, or when records are missing in its files."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        scratch, target = Path(name), Path(name, "out")
        job = {
            "way": way,
            "bootstrap": server.bootstrap_servers,
            "topic": TOPIC,
            "target": str(target),
            "master": f"local[{arguments.cores}]",
            "conf": conf(way, arguments.heap, scratch),
        }
        before = server.usage()
        with program("into_parquet", job, scratch) as running:
            peak = Peak(running.pid)
            started = usage(running.pid)
            peak.start()
            ready, done = running.said("ready"), running.said("done")
            mb = peak.stop()
            running.end()
        rows, written = counted(target)
        if rows != arguments.records:
            raise RuntimeError(f"{way}: {rows:,} of {arguments.records:,} records are in its files")
        return {
            **figures(rows, done - ready, done - started),
            "peak_memory_mb": round(mb, 1),
            "written_mb": written,
            "broker_cpu_s": round((server.usage() - before).cpu_s, 2),
        }


def figures(rows: int, work: Usage, whole: Usage) -> dict[str, float]:
    """Returns rates and seconds of the work alone, and including the start of the session."""
    return {
        "rows_per_cpu_s": round(rows / work.cpu_s),
        "rows_per_s": round(rows / work.seconds),
        "cpu_s": round(work.cpu_s, 2),
        "seconds": round(work.seconds, 2),
        "rows_per_cpu_s_with_start": round(rows / whole.cpu_s),
        "rows_per_s_with_start": round(rows / whole.seconds),
        "cpu_s_with_start": round(whole.cpu_s, 2),
        "seconds_with_start": round(whole.seconds, 2),
    }


def counted(target: Path) -> tuple[int, float]:
    """Returns the rows in the footers of all files, and the files' size in MB."""
    from pyarrow import parquet

    files = list(target.rglob("part-*.parquet"))
    return sum(parquet.read_metadata(file).num_rows for file in files), round(
        sum(file.stat().st_size for file in files) / 1e6, 1
    )


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns medians of each way, and of its ratios to the connector in the same round."""
    ways = list(dict.fromkeys(run["way"] for run in runs))
    names = list(runs[0]["figures"])
    by_round = {(run["way"], run["round"]): run["figures"] for run in runs}
    rounds = sorted({run["round"] for run in runs})
    medians = {
        way: {name: statistics.median(by_round[way, each][name] for each in rounds) for name in names} for way in ways
    }
    if CONNECTOR not in ways:
        return {"medians": medians}
    ratios = {
        way: {
            name: round(statistics.median(by_round[way, n][name] / by_round[CONNECTOR, n][name] for n in rounds), 2)
            for name in names
        }
        for way in ways
        if way != CONNECTOR
    }
    return {"medians": medians, "to_connector": ratios}


PANELS = {
    "rows_per_cpu_s": "rows a CPU second",
    "rows_per_cpu_s_with_start": "rows a CPU second, with the start",
    "rows_per_s": "rows a second",
    "peak_memory_mb": "peak memory, MiB",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of a record's value (default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--codec", default="none", help="of the producer's batches (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2, help="tasks at once (default: %(default)s)")
    parser.add_argument("--heap", default="1g", help="of the JVM (default: %(default)s)")
    parser.add_argument("--ways", default=",".join(WAYS), help="default: %(default)s")
    add_output(parser, "pipeline")
    arguments = parser.parse_args()
    ways = arguments.ways.split(",")
    if set(ways) - set(WAYS):
        parser.error(f"--ways takes {', '.join(WAYS)}")
    ways = present(ways)
    if not ways:
        return 2
    runs: list[dict[str, Any]] = []
    with PEERS["ottla"]("ottla") as server:
        produce(server, arguments.records, arguments.size, arguments.partitions, arguments.codec)
        for number in range(arguments.rounds):
            for way in ways:
                runs.append({"way": way, "round": number, "figures": measured(way, server, arguments)})
                print(json.dumps(runs[-1]), flush=True)
    shape = {name: getattr(arguments, name) for name in ("records", "size", "partitions", "codec", "cores", "heap")}
    result = {"conditions": conditions(), "parameters": shape, "runs": runs, "summary": summary(runs)}
    write_result(arguments.output, result)
    plot = arguments.output.parent / "plots" / f"{arguments.output.stem}.png"
    draw_bars(f"{arguments.records:,} records of {arguments.size} bytes into Parquet files", PANELS, runs, plot)
    print(json.dumps(result["summary"], indent=1))
    print(f"written to {arguments.output} and {plot}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
