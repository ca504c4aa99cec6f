"""`python bench COMMAND`: run measures, report writes table and plots, compare sets two revisions side by side."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.cells import PROFILES, Cell, all_cells, chosen
from harness.compare import installed, regressions, verdict
from harness.conditions import conditions
from harness.load import missing
from harness.peers import PEERS, Ottla, Server
from harness.report import publish, write_report
from harness.run import Plan, minutes, run_plan

RESULTS = Path(__file__).parent / "results"
COMPARED = RESULTS / "compared"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure missing cells, then report")
    report = commands.add_parser("report", help="write summary.json, table.md and plots again")
    compare = commands.add_parser("compare", help="this checkout against another revision")
    for each, profile in ((run, "full"), (report, "full"), (compare, "quick")):
        each.add_argument("--profile", choices=PROFILES, default=profile, help="default: %(default)s")
    report.add_argument("--publish", action="store_true", help="also copy it to bench/results, which git keeps")
    for each in (run, compare):
        each.add_argument(
            "--only", action="append", default=[], metavar="PATTERN", help="cells, such as 'produce/1024/*'"
        )
        each.add_argument("--rounds", type=int, help="default: the profile's")
        each.add_argument("--list", action="store_true", help="print the names of the cells and stop")
        each.add_argument("--free-memory", action="store_true", help="do not fill the page cache before each run")
    run.add_argument("--peers", help=f"of {','.join(PEERS)}; default: the profile's")
    run.add_argument("--again", action="store_true", help="repeat existing measurements")
    compare.add_argument("base", help="a revision of this repository")
    compare.add_argument(
        "--limit", type=float, default=1.15, help="a larger ratio is a regression (default: %(default)s)"
    )
    return parser.parse_args()


def available(names: Sequence[str]) -> dict[str, type[Server]]:
    """Returns the peers that can be started here, and prints a notice for each of the others."""
    for name in names:
        if PEERS[name].missing():
            print(f"{name} is left out: {PEERS[name].missing()}")
    return {name: PEERS[name] for name in names if not PEERS[name].missing()}


def measure(options: argparse.Namespace, cells: list[Cell]) -> None:
    """Measure all cells without a stored result."""
    profile = PROFILES[options.profile]
    plan = Plan(
        cells=cells,
        peers=available(options.peers.split(",") if options.peers else profile.peers),
        profile=profile,
        rounds=options.rounds or profile.rounds,
        folder=RESULTS / profile.results,
        conditions=conditions(),
        again=options.again,
        full_page_cache=not options.free_memory,
    )
    print(f"about {minutes(plan):.0f} minutes")
    run_plan(plan)
    write_report(plan.folder)
    print((plan.folder / "table.md").read_text())


def compare(options: argparse.Namespace, cells: list[Cell]) -> int:
    """Measure both revisions from the start; returns 1 on a regression."""
    profile = PROFILES[options.profile]
    shutil.rmtree(COMPARED, ignore_errors=True)
    with installed(options.base) as site:
        plan = Plan(
            cells=cells,
            peers={"base": partial(Ottla, source=site), "head": Ottla},
            profile=profile,
            rounds=options.rounds or 3,
            folder=COMPARED,
            conditions={**conditions(), "base": options.base},
            full_page_cache=not options.free_memory,
        )
        print(f"about {minutes(plan):.0f} minutes")
        run_plan(plan)
    summary = write_report(COMPARED, "head", "base")
    print(verdict(summary, options.limit))
    return 1 if regressions(summary, options.limit) else 0


def main() -> int:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # peers are stopped, as after Ctrl-C
    if options.command == "report":
        folder = RESULTS / PROFILES[options.profile].results
        write_report(folder)
        for path in publish(folder, RESULTS) if options.publish else ():
            print(path)
        return 0
    cells = chosen(all_cells(), options.profile, options.only)
    if options.list:
        for cell in cells:
            print(f"{cell.name}  ({', '.join(cell.peers)}; {', '.join(sorted(cell.profiles))}) {cell.shape}")
    elif missing():
        print(f"nothing was measured: {missing()}", file=sys.stderr)
        return 2
    elif options.command == "run":
        measure(options, cells)
    else:
        return compare(options, cells)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
