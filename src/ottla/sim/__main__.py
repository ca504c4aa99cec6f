"""`python -m ottla.sim`: run seeds of the simulation; a failing one prints what led to it and how to see it again."""

from __future__ import annotations

import argparse
import sys
import time

from ottla.sim.groups import PROTOCOLS, GroupSimulation, Options, Outcome
from ottla.sim.replication import MIN_FAULTS, MIN_OPERATIONS, ClusterOptions, ClusterOutcome, ReplicationSimulation

HISTORY_LINES = 120
GROUPS, CLUSTER = "groups", "cluster"


def main(arguments: list[str] | None = None) -> int:
    """0 when every seed held, 1 when one did not."""
    chosen = _parser().parse_args(arguments)
    failed: list[int] = []
    thin: list[int] = []
    events, cpu_s, virtual_s = 0, 0.0, 0.0
    for seed in range(chosen.seed, chosen.seed + chosen.many):
        outcome = _run(seed, chosen)
        events += outcome.events
        cpu_s += outcome.cpu_s
        virtual_s += outcome.virtual_s
        print(_line(outcome), flush=True)
        if isinstance(outcome, ClusterOutcome) and not outcome.counts:
            thin.append(seed)
        if outcome.violation is not None:
            failed.append(seed)
            _print_violation(outcome, chosen)
            if not chosen.keep_going:
                break
    rate = events / max(cpu_s, 1e-9)
    print(f"{events} events in {cpu_s:.1f} s of CPU, {rate:,.0f} a second; {virtual_s:,.0f} s simulated")
    if thin:
        print(f"below {MIN_OPERATIONS:,} operations or {MIN_FAULTS} faults, so not counted: {' '.join(map(str, thin))}")
    if failed:
        print(f"failed: {' '.join(map(str, failed))}")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description=__doc__)
    parser.add_argument("--workload", choices=(GROUPS, CLUSTER), default=GROUPS, help="one broker, or several")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--many", type=int, default=1, metavar="N", help="how many seeds from there on")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="of the groups, instead of what the seed chooses")
    parser.add_argument("--faults-s", type=float, help="virtual seconds of faults")
    parser.add_argument("--beyond", action="store_true", help="lose more than the promises cover, count it")
    parser.add_argument("--history", type=int, default=HISTORY_LINES, help="lines that a failing seed prints")
    parser.add_argument("--keep-going", action="store_true", help="also after a failing seed")
    return parser


def _run(seed: int, chosen: argparse.Namespace) -> Outcome | ClusterOutcome:
    if chosen.workload == CLUSTER:
        faults_s = ClusterOptions.faults_s if chosen.faults_s is None else chosen.faults_s
        options = ClusterOptions(faults_s=faults_s, beyond=chosen.beyond)
        return ReplicationSimulation(seed, options, time.process_time).run()
    faults_s = Options.faults_s if chosen.faults_s is None else chosen.faults_s
    return GroupSimulation(seed, Options(protocol=chosen.protocol, faults_s=faults_s), time.process_time).run()


def _line(outcome: Outcome | ClusterOutcome) -> str:
    verdict = "ok  " if outcome.violation is None else "FAIL"
    start = f"{verdict} seed {outcome.seed}: {outcome.description}; "
    if isinstance(outcome, Outcome):
        return start + (
            f"{outcome.broker_starts} broker starts, {outcome.rebalances} partitions taken, "
            f"{outcome.commits} offsets committed, trace {outcome.trace_hash}"
        )
    losses = ""
    if outcome.conflicts:
        losses = f"{outcome.losses.acknowledged} acknowledged and {outcome.losses.served} served records lost, "
    return start + (
        f"{outcome.operations} operations, {outcome.faults} faults, {outcome.node_starts} node starts, "
        f"{outcome.leader_changes} leaders, {outcome.acknowledged} records acknowledged, {losses}"
        f"trace {outcome.trace_hash}"
    )


def _print_violation(outcome: Outcome | ClusterOutcome, chosen: argparse.Namespace) -> None:
    print(f"\nseed {outcome.seed}: {outcome.violation}\n")
    for line in outcome.history[max(0, len(outcome.history) - chosen.history) :]:
        print(f"  {line}")
    again = f"--workload {chosen.workload} --seed {outcome.seed}"
    if chosen.faults_s is not None:
        again += f" --faults-s {chosen.faults_s:g}"
    if chosen.protocol is not None:
        again += f" --protocol {chosen.protocol}"
    if chosen.beyond:
        again += " --beyond"
    print(f"\nagain: python -m ottla.sim {again}\n")


if __name__ == "__main__":
    sys.exit(main())
