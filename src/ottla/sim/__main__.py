"""`python -m ottla.sim`: run seeds of the simulation; a failing one prints what led to it and how to see it again."""

from __future__ import annotations

import argparse
import sys
import time

from ottla.sim.groups import PROTOCOLS, GroupSimulation, Options, Outcome

HISTORY_LINES = 120


def main(arguments: list[str] | None = None) -> int:
    """0 when every seed held, 1 when one did not."""
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--many", type=int, default=1, metavar="N", help="how many seeds from there on")
    parser.add_argument("--protocol", choices=PROTOCOLS, help="instead of what the seed chooses")
    parser.add_argument("--faults-s", type=float, default=Options.faults_s, help="virtual seconds of faults")
    parser.add_argument("--history", type=int, default=HISTORY_LINES, help="lines that a failing seed prints")
    parser.add_argument("--keep-going", action="store_true", help="also after a failing seed")
    chosen = parser.parse_args(arguments)
    options = Options(protocol=chosen.protocol, faults_s=chosen.faults_s)
    failed: list[int] = []
    total = Outcome(0, "", "")
    for seed in range(chosen.seed, chosen.seed + chosen.many):
        outcome = GroupSimulation(seed, options, time.process_time).run()
        total.events += outcome.events
        total.cpu_s += outcome.cpu_s
        total.virtual_s += outcome.virtual_s
        print(_line(outcome), flush=True)
        if outcome.violation is not None:
            failed.append(seed)
            _print_violation(outcome, chosen.history, options)
            if not chosen.keep_going:
                break
    print(
        f"{total.events} events in {total.cpu_s:.1f} s of CPU, {total.events / max(total.cpu_s, 1e-9):,.0f} a second; "
        f"{total.virtual_s:,.0f} s simulated"
    )
    if failed:
        print(f"failed: {' '.join(map(str, failed))}")
    return 1 if failed else 0


def _line(outcome: Outcome) -> str:
    verdict = "ok  " if outcome.violation is None else "FAIL"
    return (
        f"{verdict} seed {outcome.seed}: {outcome.description}; {outcome.broker_starts} broker starts, "
        f"{outcome.rebalances} partitions taken, {outcome.commits} offsets committed, trace {outcome.trace_hash}"
    )


def _print_violation(outcome: Outcome, lines: int, options: Options) -> None:
    print(f"\nseed {outcome.seed}: {outcome.violation}\n")
    for line in outcome.history[max(0, len(outcome.history) - lines) :]:
        print(f"  {line}")
    again = f"--seed {outcome.seed} --faults-s {options.faults_s:g}"
    if options.protocol is not None:
        again += f" --protocol {options.protocol}"
    print(f"\nagain: python -m ottla.sim {again}\n")


if __name__ == "__main__":
    sys.exit(main())
