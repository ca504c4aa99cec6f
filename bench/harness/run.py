"""Runs all cells in alternation (A B A B) for a number of rounds, writes one JSON file per run, and skips existing
runs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.cells import Cell, Figure, Profile
from harness.cluster import Cluster
from harness.page_cache import page_cache_filler, write_cost_s_per_gb
from harness.peers import LOAD_CPUS, Server

AROUND_S = 10.0


@dataclasses.dataclass(frozen=True)
class Plan:
    """The cells to run and the folder of their results."""

    cells: Sequence[Cell]
    peers: Mapping[str, Callable[..., Server]]
    profile: Profile
    rounds: int
    folder: Path
    conditions: Mapping[str, Any]
    again: bool = False
    full_page_cache: bool = True


def run_file(folder: Path, cell: Cell, peer: str, round_number: int) -> Path:
    """Returns the file of a run; its name is for readers, all parts of it are also in the content."""
    name = re.sub(r"[^\w.=-]+", "_", cell.name)
    return folder / "runs" / f"{name}--{peer}--{round_number}.json"


def wanted(path: Path, again: bool) -> bool:
    """Returns whether to run: a failed run is retried."""
    return again or not path.exists() or "error" in json.loads(path.read_text())


def new_server(cell: Cell, peer: str, make: Callable[..., Server]) -> Server:
    """Returns the peer for the cell: one process, or a cluster."""
    settings = dict(cell.settings)
    if cell.brokers > 1:
        return Cluster(peer, settings, make_node=make, size=cell.brokers)
    return make(peer, settings=settings)


def one_run(cell: Cell, server: Server, profile: Profile) -> Sequence[Figure]:
    """Run the cell on a new peer, which is always stopped and removed."""
    if cell.started:
        with server:
            return cell.run(server, profile)
    try:
        return cell.run(server, profile)
    finally:
        server.__exit__(None, None, None)


def record(plan: Plan, cell: Cell, peer: str, round_number: int) -> dict[str, Any]:
    """Run the cell and store the result; an error is also stored, and the other cells continue."""
    started = time.perf_counter()
    result: dict[str, Any] = {
        "cell": cell.name,
        "peer": peer,
        "round": round_number,
        "profile": {"seconds": plan.profile.seconds, "warm_up_s": plan.profile.warm_up_s},
        "settings": dict(cell.settings),
        "brokers": cell.brokers,
        "shape": cell.shape,
        "axis": dataclasses.asdict(cell.axis) if cell.axis else None,
        "conditions": {
            **plan.conditions,
            "full_page_cache": plan.full_page_cache,
            "page_cache_write_s_per_gb": write_cost_s_per_gb(),
        },
    }
    try:
        figures = one_run(cell, new_server(cell, peer, plan.peers[peer]), plan.profile)
        result["figures"] = [dataclasses.asdict(figure) for figure in figures]
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"
    result["took_s"] = round(time.perf_counter() - started, 1)
    return result


def shown(result: Mapping[str, Any]) -> str:
    if "error" in result:
        return f"failed: {result['error']}"
    return ", ".join(
        f"{each['name']} {each['value']:.4g} {each['unit']}" for each in result["figures"] if each["yardstick"]
    )


def runs_of(plan: Plan) -> Iterator[tuple[Cell, str, int, Path]]:
    """Yields the remaining runs in order, cell by cell, so that compared runs are only minutes apart."""
    for cell in plan.cells:
        for round_number in range(plan.rounds):
            for peer in plan.peers:
                path = run_file(plan.folder, cell, peer, round_number)
                if may_run(cell, peer) and wanted(path, plan.again):
                    yield cell, peer, round_number, path


def may_run(cell: Cell, peer: str) -> bool:
    """Returns whether the cell supports the peer; compared Ottla revisions have their own names."""
    return peer in cell.peers or (peer in ("base", "head") and "ottla" in cell.peers)


def minutes(plan: Plan) -> float:
    """Returns an estimate: a run takes its own time and some seconds to start, to stop and to fill the page cache."""
    return sum(plan.profile.seconds + plan.profile.warm_up_s + AROUND_S for _ in runs_of(plan)) / 60


def run_plan(plan: Plan) -> None:
    """Run everything that remains; each run is stored at its end."""
    os.sched_setaffinity(0, LOAD_CPUS)  # for this process and every load that it starts
    with page_cache_filler() as fill_page_cache:
        for cell, peer, round_number, path in runs_of(plan):
            os.sync()  # flush writes of earlier programs before this run's window
            if plan.full_page_cache:
                fill_page_cache()
            result = record(plan, cell, peer, round_number)
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".tmp")
            unfinished.write_text(json.dumps(result, indent=1) + "\n")
            os.replace(unfinished, path)
            print(f"{cell.name} {peer} #{round_number}: {shown(result)}", file=sys.stderr, flush=True)
