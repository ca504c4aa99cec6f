"""Cells of a workload: each is one measurement on one peer, and returns its figures.

A workload is a module of `bench/workloads/` with a function `cells()`; it needs no registration.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

import workloads

from harness.cluster import Cluster
from harness.peers import Server
from harness.processes import Usage


@dataclass(frozen=True)
class Figure:
    """A number with its unit; `yardstick` marks those that the table, the plots and the comparison show as ratios."""

    name: str
    value: float
    unit: str
    better: Literal["less", "more", "neither"] = "less"
    yardstick: bool = False


@dataclass(frozen=True)
class Profile:
    """Duration and number of runs; a cell names its profiles."""

    name: str
    seconds: float
    """Minimum measured time of a run."""
    warm_up_s: float
    """Load before the measured time; the JVM compiles meanwhile."""
    rounds: int
    results: str
    """Folder under bench/results; full and subset share one, because their cells are the same."""
    peers: Sequence[str] = ("ottla", "kafka", "nats")


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("full", seconds=10, warm_up_s=4, rounds=3, results="measured"),
        Profile("subset", seconds=10, warm_up_s=4, rounds=3, results="measured", peers=("ottla", "kafka")),
        Profile("quick", seconds=2, warm_up_s=1, rounds=1, results="quick", peers=("ottla", "kafka")),
    )
}


@dataclass(frozen=True)
class Axis:
    """The cell's position in a log-log plot of cost against size: a line, and a point on it."""

    plot: str
    line: str
    x: float
    unit: str


@dataclass(frozen=True)
class Cell:
    """One measurement. `run` gets a started peer (one that does not run yet when `started` is false), removed after it.

    `name` is what `--only` matches: workload/parameter/parameter. `settings` are broker settings by their Kafka
    names, given to every peer alike. `shape` names the OpenMessaging Benchmark workload that the cell follows.
    """

    name: str
    run: Callable[[Server, Profile], Sequence[Figure]]
    profiles: frozenset[str] = frozenset({"full"})
    peers: Sequence[str] = ("ottla", "kafka")
    settings: Mapping[str, object] = field(default_factory=dict)
    started: bool = True
    brokers: int = 1
    """With more than one, each peer is a cluster of that many processes (`harness.cluster`), under the same names."""
    axis: Axis | None = None
    shape: str = ""


def profiles(name: str, subset: Collection[str], quick: Collection[str] = ()) -> frozenset[str]:
    """Returns a cell's profiles: full always, and the others if the workload lists the name."""
    return frozenset({"full"} | ({"subset"} if name in subset else set()) | ({"quick"} if name in quick else set()))


def all_cells() -> list[Cell]:
    """Returns the cells of every module in `workloads`, by module name."""
    modules = sorted(module.name for module in pkgutil.iter_modules(workloads.__path__))
    found = [cell for name in modules for cell in importlib.import_module(f"workloads.{name}").cells()]
    if len({cell.name for cell in found}) != len(found):
        raise ValueError("two cells have one name")
    return found


def chosen(cells: Sequence[Cell], profile: str, only: Sequence[str]) -> list[Cell]:
    """Returns the cells of a profile; with patterns the matching cells of any profile."""
    if only:
        return [cell for cell in cells if any(fnmatchcase(cell.name, pattern) for pattern in only)]
    return [cell for cell in cells if profile in cell.profiles]


def cpu_figures(used: Usage, *, payload_bytes: int = 0, records: int = 0, requests: int = 0) -> list[Figure]:
    """Returns broker CPU of a window per GB of payload (10^9 bytes), million records and million requests, and the
    rates.
    """
    figures = []
    for count, scale, unit in ((payload_bytes, 1e9, "GB"), (records, 1e6, "M records"), (requests, 1e6, "M requests")):
        if count:
            figures.append(Figure(f"broker CPU per {unit}", used.cpu_s / count * scale, f"s/{unit}", yardstick=True))
            figures.append(Figure(f"{unit} per second", count / scale / used.seconds, f"{unit}/s", better="more"))
    system_share = used.system_s / used.cpu_s if used.cpu_s else 0.0
    figures.append(Figure("broker cores used", used.cpu_s / used.seconds, "cores", better="neither"))
    figures.append(Figure("system share of CPU", system_share, "", better="neither"))
    return figures


def memory_figures(server: Server) -> list[Figure]:
    """Returns current and peak resident memory; of a cluster the sum, and that of each broker."""
    figures = [
        Figure("memory", server.memory_mb(), "MiB"),
        Figure("peak memory", server.peak_memory_mb(), "MiB", yardstick=True),
    ]
    if isinstance(server, Cluster):
        figures += [
            Figure(f"peak memory of broker {number}", node.peak_memory_mb(), "MiB", better="neither")
            for number, node in enumerate(server.nodes, start=1)
        ]
    return figures


def quantile_figures(name: str, quantiles_s: Mapping[float, float]) -> list[Figure]:
    """Returns latencies, such as {0.5: 0.0001, 0.99: 0.0004}, in microseconds."""
    return [
        Figure(f"{name} p{quantile * 100:g}", seconds * 1e6, "us", yardstick=True)
        for quantile, seconds in quantiles_s.items()
    ]
