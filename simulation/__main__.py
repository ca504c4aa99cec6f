"""`python -m simulation`: run seeds of the simulation; for a failing one print its history and the command to rerun
it."""

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
    """0 if every seed passed, 1 otherwise."""
    chosen = _parser().parse_args(arguments)
    if chosen.model is not None:
        return _explore(chosen.model, chosen.bounds)
    outcomes = []
    for outcome in outcomes_of(chosen):
        print(_line(outcome), flush=True)
        if outcome.violation is not None:
            _print_violation(outcome, chosen)
        # Only the totals are needed from here on.
        outcome.history.clear()
        outcomes.append(outcome)
    return _sum_up(outcomes, chosen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default=GROUPS, help="groups: one broker")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--many", type=int, default=1, metavar="N", help="number of seeds")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="number of processes")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="group protocol, instead of the seed's choice")
    parser.add_argument("--faults-s", type=float, help="virtual seconds of faults")
    parser.add_argument("--damage", action="store_true", help="cluster only: also flip bits of files")
    parser.add_argument("--beyond", action="store_true", help="exceed the guaranteed faults, and count losses")
    parser.add_argument(
        "--model", type=int, metavar="DEPTH", help="explore all states of the transaction model to this depth"
    )
    parser.add_argument("--bounds", choices=BOUNDS, default="all", help="limits of the model's events")
    parser.add_argument("--history", type=int, default=HISTORY_LINES, help="lines that a failing seed prints")
    return parser


def _explore(depth: int, bounds: str) -> int:
    """Print the result of exploring the transaction model to a given depth."""
    found = explore(depth, BOUNDS[bounds], Rules())
    reach = "all there are" if found.complete else "more exist beyond this depth"
    print(f"{found.states:,} states in {found.depth} steps, {reach}; {found.cpu_s:,.1f} s of CPU")
    if found.wrong is None:
        return 0
    print(f"\n{found.wrong}\n")
    for number, step in enumerate(found.trace, 1):
        print(f"{number:4} {describe(step)}")
    return 1


def _line(outcome: RunOutcome) -> str:
    verdict = "ok  " if outcome.violation is None else "FAIL"
    return f"{verdict} seed {outcome.seed}: {outcome.description}; {outcome.summary()}, trace {outcome.trace_hash}"


def _print_violation(outcome: RunOutcome, chosen: argparse.Namespace) -> None:
    print(f"\nseed {outcome.seed}: {outcome.violation}\n")
    for line in outcome.history[max(0, len(outcome.history) - chosen.history) :]:
        print(f"  {line}")
    print(f"\nagain: {_command(outcome.seed, chosen)}\n")


def _command(seed: int, chosen: argparse.Namespace) -> str:
    """The command that reruns a seed."""
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
