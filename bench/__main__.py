"""`python bench COMMAND`: run measures, see README.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.cells import PROFILES, all_cells, chosen
from harness.peers import PEERS
from harness.run import Plan, run_plan

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure; what is there already is skipped")
    run.add_argument("--profile", choices=PROFILES, default="full")
    run.add_argument(
        "--only", action="append", default=[], metavar="PATTERN", help="cells by name, such as produce/1024/*"
    )
    run.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    run.add_argument("--rounds", type=int)
    run.add_argument("--again", action="store_true", help="measure also what is there")
    run.add_argument("--list", action="store_true", help="only print the names of the cells")
    arguments = parser.parse_args()
    profile = PROFILES[arguments.profile]
    cells = chosen(all_cells(), profile.name, arguments.only)
    if arguments.list:
        print("\n".join(cell.name for cell in cells))
        return
    rounds = arguments.rounds or profile.rounds
    folder = RESULTS / profile.results
    run_plan(Plan(cells, arguments.peers.split(","), profile, rounds, folder, {}, arguments.again))


if __name__ == "__main__":
    main()
