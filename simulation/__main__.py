"""`python -m simulation`: run seeds of the simulation; a failing one prints what led to it and how to see it again."""

from __future__ import annotations

import argparse
import sys

from simulation.cluster_simulation import ClusterRunOutcome
from simulation.group_protocols import PROTOCOLS
from simulation.replication import ClusterOutcome
from simulation.seeds import GROUPS, WORKLOADS, outcomes_of
from simulation.simulation import RunOutcome
from simulation.transaction_explorer import describe, explore
from simulation.transaction_model import BOUNDS, Rules

HISTORY_LINES = 120


def main(arguments: list[str] | None = None) -> int:
    """0 when every seed held, 1 when one did not."""
    chosen = _parser().parse_args(arguments)
    if chosen.model is not None:
        return _explore(chosen.model, chosen.bounds)
    outcomes = []
    for outcome in outcomes_of(chosen):
        print(_line(outcome), flush=True)
        if outcome.violation is not None:
            _print_violation(outcome, chosen)
        # Only the sums are wanted of it from here on.
        outcome.history.clear()
        outcomes.append(outcome)
    return _sum_up(outcomes, chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default=GROUPS, help="groups: one broker")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--many", type=int, default=1, metavar="N", help="how many seeds from there on")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="how many processes run them")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="of the group, instead of what the seed chooses")
    parser.add_argument("--faults-s", type=float, help="virtual seconds of faults")
    parser.add_argument("--damage", action="store_true", help="in a cluster: change bits of files, too")
    parser.add_argument("--beyond", action="store_true", help="lose more than the promises cover, count it")
    parser.add_argument(
        "--model", type=int, metavar="DEPTH", help="walk all states of the model of transactions, to that many steps"
    )
    parser.add_argument("--bounds", choices=BOUNDS, default="all", help="of the model: what may happen how often")
    parser.add_argument("--history", type=int, default=HISTORY_LINES, help="lines that a failing seed prints")
    return parser


def _explore(depth: int, bounds: str) -> int:
    """Print what the model of transactions shows within so many steps."""
    found = explore(depth, BOUNDS[bounds], Rules())
    reach = "all there are" if found.complete else "more lie behind"
    print(f"{found.states:,} states in {found.depth} steps, {reach}; {found.cpu_s:,.1f} s of CPU")
    if found.wrong is None:
        return 0
    print(f"\n{found.wrong}\n")
    for number, step in enumerate(found.trace, 1):
        print(f"{number:4} {describe(step)}")
    return 1


def _line(outcome: RunOutcome) -> str:
    verdict = "ok  " if outcome.violation is None else "FAIL"
    return f"{verdict} seed {outcome.seed}: {outcome.description}; {outcome.told()}, trace {outcome.trace_hash}"


def _print_violation(outcome: RunOutcome, chosen: argparse.Namespace) -> None:
    print(f"\nseed {outcome.seed}: {outcome.violation}\n")
    for line in outcome.history[max(0, len(outcome.history) - chosen.history) :]:
        print(f"  {line}")
    print(f"\nagain: {_command(outcome.seed, chosen)}\n")


def _command(seed: int, chosen: argparse.Namespace) -> str:
    """What runs a seed again."""
    again = f"python -m simulation --workload {chosen.workload} --seed {seed}"
    if chosen.faults_s is not None:
        again += f" --faults-s {chosen.faults_s:g}"
    if chosen.protocol is not None:
        again += f" --protocol {chosen.protocol}"
    if chosen.beyond:
        again += " --beyond"
    if chosen.damage:
        again += " --damage"
    return again


def _sum_up(outcomes: list[RunOutcome], chosen: argparse.Namespace) -> int:
    failed = [outcome for outcome in outcomes if outcome.violation is not None]
    events = sum(outcome.events for outcome in outcomes)
    cpu_s = sum(outcome.cpu_s for outcome in outcomes)
    clusters = [outcome for outcome in outcomes if isinstance(outcome, ClusterRunOutcome)]
    thin = [outcome for outcome in clusters if not outcome.counts]
    if thin:
        print(f"{thin[0].too_little}, so not counted: {' '.join(str(outcome.seed) for outcome in thin)}")
    for outcome in failed:
        print(f"failed: {_command(outcome.seed, chosen)}  # {outcome.violation}")
    line = f"{len(outcomes) - len(failed)} of {len(outcomes)} seeds held"
    if clusters:
        line += (
            f", {len(clusters) - len(thin)} counted; {sum(each.operations for each in clusters):,} operations, "
            f"{sum(each.faults for each in clusters):,} faults, "
            f"{sum(each.acknowledged for each in clusters):,} records acknowledged"
        )
        if chosen.beyond:
            lost = sum(each.losses.acknowledged for each in clusters if isinstance(each, ClusterOutcome))
            line += f", {lost:,} of them lost"
    virtual_s = sum(outcome.virtual_s for outcome in outcomes)
    print(
        f"{line}; {virtual_s:,.0f} s simulated, {events:,} events in {cpu_s:,.1f} s of CPU, "
        f"{events / max(cpu_s, 1e-9):,.0f} a second, {cpu_s / max(len(outcomes), 1):.2f} s a seed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
