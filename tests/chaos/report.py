"""Results of a run, as text and as JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from .course import Outcome

LINES = 8
MAX_WIDTH = 110


def percentile(values: Sequence[float], share: float) -> float:
    """By nearest rank; 0 without values."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else 0.0


def as_json(outcome: Outcome) -> dict[str, Any]:
    """All figures; times in seconds."""
    figures, options, nemesis = outcome.figures, outcome.options, outcome.nemesis
    lag = figures.worst_lag
    windows = sorted(figures.gaps, key=lambda gap: gap[0] - gap[1])
    return {
        "seed": options.seed,
        "brokers": options.brokers,
        "security": options.security,
        "coordination": options.coordination,
        "mode": "acks=1, unclean elections" if options.lossy else "acks=all, min ISR 2",
        "seconds": outcome.elapsed_s,
        "rounds": outcome.rounds,
        "operations": {
            "sent": figures.sent,
            "acknowledged": figures.acknowledged,
            "given up by their producer": figures.failed,
            "sent again by a producer in a new epoch": figures.resent,
            "read by assignment": figures.served,
            "read in groups": figures.group_reads,
            "members joined": figures.group_joins,
            "latest offsets asked": figures.looked_up,
        },
        "transactions": dict(figures.transactions.most_common()),
        "faults": dict(nemesis.counts.most_common()),
        "faults skipped": nemesis.skipped,
        "ends of a node on a full disk": nemesis.ended_on_a_full_disk,
        "ends of a server of ZooKeeper by itself": nemesis.servers_ended,
        "reigns of controllers": outcome.reigns,
        "packets": dict(zip(("passed", "lost", "delayed"), outcome.packets, strict=True)),
        "errors clients saw": dict(figures.errors.most_common()),
        "acknowledgement latency": {
            "p50": percentile(figures.latencies_s, 0.5),
            "p99": percentile(figures.latencies_s, 0.99),
            "max": percentile(figures.latencies_s, 1.0),
        },
        "longest without acknowledgement": figures.longest_gap_s,
        "unavailable windows": [
            {"seconds": end - start, "faults": nemesis.active(start, end)} for start, end in windows
        ],
        "unavailable in all": sum(end - start for start, end in windows),
        "worst lag of a reader": {
            "seconds": lag.seconds,
            "record": lag.what,
            "faults": nemesis.active(lag.start_s, lag.end_s),
        },
        "recovery": {
            "acknowledged again, worst": max(outcome.progress_s, default=None),
            "every ISR full after that, worst": max(outcome.in_sync_s, default=None),
        },
        "bytes of replicas compared": outcome.compared_bytes,
        "batches with their leader epoch in the file": outcome.epoch_batches,
        "lost": {"acknowledged": figures.lost_acknowledged, "served": figures.lost_served},
        "forgiven by rule": dict(figures.forgiven),
        "violations": outcome.violations,
    }


def as_text(outcome: Outcome) -> str:
    """Aligned, for people."""
    data = as_json(outcome)
    options, nemesis = outcome.options, outcome.nemesis
    latency, packets, recovery = data["acknowledgement latency"], data["packets"], data["recovery"]
    rows = [
        (
            "cluster",
            f"{options.brokers} brokers, {options.coordination}, {options.security}, {data['mode']}, "
            f"seed {options.seed}",
        ),
        ("time", f"{outcome.elapsed_s / 60:.1f} min in {outcome.rounds} rounds"),
        *_counted("operations", data["operations"]),
        *_counted("transactions", data["transactions"]),
        *_counted("faults", data["faults"]),
        ("", f"{nemesis.counts.total()} in all, {nemesis.skipped} skipped where the process was down already"),
        ("packets", ", ".join(f"{count:,} {name}" for name, count in packets.items())),
        ("nodes ended on a full disk", str(nemesis.ended_on_a_full_disk)),
        *_counted("errors clients saw", Counter(data["errors clients saw"])),
        ("ack latency", f"p50 {latency['p50'] * 1e3:.0f} ms, p99 {latency['p99']:.2f} s, max {latency['max']:.1f} s"),
        ("longest without an ack", f"{data['longest without acknowledgement']:.1f} s"),
        ("unavailable", f"{data['unavailable in all']:.1f} s in {len(data['unavailable windows'])} windows over 1 s"),
        *(("", _window(window)) for window in data["unavailable windows"][:LINES]),
        ("worst lag of a reader", _window(data["worst lag of a reader"])),
    ]
    if outcome.reigns is not None:
        rows.append(("controllers", f"{outcome.reigns} one after the other, each in an epoch of its own"))
        rows.append(("servers ended by themselves", str(nemesis.servers_ended)))
    if outcome.in_sync_s:
        words = "{:.1f} s to acknowledgements, {:.1f} s more to full ISRs".format(*recovery.values())
        rows.append(("recovery, worst of the rounds", words))
    rows.append(("replicas compared", f"{outcome.compared_bytes:,} bytes"))
    rows.append(("leader epoch files", f"{outcome.epoch_batches:,} batches compared"))
    if options.lossy:
        lost = data["lost"]
        rows.append(("lost, as documented", f"{lost['acknowledged']:,} acknowledged, {lost['served']:,} served"))
        rows += _counted("broken rules, forgiven", data["forgiven by rule"])
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {text}" for name, text in rows]
    lines += [f"VIOLATION {each}" for each in outcome.violations]
    verdict = f"{len(outcome.violations) or 'no'} violations, seed {options.seed}"
    return "\n".join([*lines, verdict])


def _window(window: dict[str, Any]) -> str:
    return f"{window['seconds']:5.1f} s with {', '.join(window['faults']) or 'no fault'}"[:MAX_WIDTH]


def _counted(title: str, counts: dict[str, int]) -> list[tuple[str, str]]:
    """A row for each count, the title on the first."""
    width = max((len(f"{count:,}") for count in counts.values()), default=0)
    rows = [f"{count:>{width},} {name}" for name, count in counts.items()] or ["none"]
    return [("" if number else title, text) for number, text in enumerate(rows)]
