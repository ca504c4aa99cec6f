"""`make chaos`: real brokers under random faults from a seed, with producers and consumers, checked round by round.

    python -m tests.chaos --minutes 40 --seed 1 --brokers 3 [--security sasl_ssl] [--coordination zookeeper] [--lossy]
[--json FILE] [--keep DIR]

The run uses its own namespaces (processes, network, mounts), so nothing remains when it ends in any way. The seed fixes
the faults and their start times; processes and networks have their own timing, so a second run with it is similar, not
identical. Exit code 0: clean; 1: a guarantee was violated; 2: this machine can't run it, or an option is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from . import coordination, security

NAMESPACES = ["--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
INTERRUPTED = 130
INSIDE = "OTTLA_CHAOS_INSIDE"
"""Set in the environment of the process that runs in the namespaces."""


def obstacle(kind: str = coordination.KINDS[0]) -> str | None:
    """Why this machine can't do it, with a `kind` of coordination."""
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing:
        return f"needs the commands {', '.join(missing)} (Debian: util-linux, iproute2)"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "needs root, and /dev/net/tun for networks of its own"
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], check=False, capture_output=True, text=True)
    if tried.returncode != 0:
        return f"may not make namespaces here (it needs root): {tried.stderr.strip()}"
    return coordination.obstacle(kind)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Random faults on real brokers.")
    parser.add_argument("--minutes", type=float, default=40.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--brokers", type=int, default=3, choices=range(3, 10), metavar="3..9")
    parser.add_argument("--lossy", action="store_true", help="acks=1, min ISR 1, unclean elections: losses are counted")
    parser.add_argument(
        "--security",
        choices=security.KINDS,
        default=security.KINDS[0],
        help="sasl_ssl: nodes and clients authenticate by SCRAM",
    )
    parser.add_argument(
        "--coordination",
        choices=coordination.KINDS,
        default=coordination.KINDS[0],
        help="zookeeper: three servers in place of the brokers' own quorum; faults are theirs too",
    )
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument(
        "--keep", type=Path, help="a new directory for logs and histories, and the replicas at a violation"
    )
    chosen = parser.parse_args(arguments)
    if not 0.2 <= chosen.minutes <= 24 * 60:
        parser.error("--minutes must be between 0.2 and 1440")
    if chosen.keep is not None and chosen.keep.exists():
        parser.error(f"{chosen.keep} exists")
    return chosen


def run(chosen: argparse.Namespace) -> int:
    """The whole run, inside the namespaces."""
    from .course import Course, Options
    from .report import as_json, as_text

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="ottla-chaos-"))
    try:
        options = Options(
            chosen.seed,
            chosen.brokers,
            chosen.minutes * 60,
            chosen.lossy,
            folder,
            security=chosen.security,
            coordination=chosen.coordination,
        )
        with Course(options, lambda line: print(line, flush=True)) as course:
            outcome = course.run()
            text, data = as_text(outcome), as_json(outcome)
        if chosen.json is not None:
            chosen.json.write_text(json.dumps(data, indent=1) + "\n")
        print(text)
        return 1 if outcome.violations else 0
    finally:
        if chosen.keep is not None:
            chosen.keep.mkdir(parents=True)
            for path in [*folder.glob("*.log"), *folder.glob("*.txt")]:
                shutil.copy(path, chosen.keep)
            if (folder / "evidence").exists():
                shutil.copytree(folder / "evidence", chosen.keep / "evidence")
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Enter the namespaces, then run there."""
    chosen = parse(sys.argv[1:])
    if os.environ.get(INSIDE):
        try:
            code = run(chosen)
        except KeyboardInterrupt:
            code = INTERRUPTED
        sys.stdout.flush()
        os._exit(code)  # threads of an interrupted round are not waited for: all processes here end with this one
    reason = obstacle(chosen.coordination)
    if reason is not None:
        print(f"chaos: {reason}", file=sys.stderr)
        sys.exit(2)
    command = ["unshare", *NAMESPACES, sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
    os.execvpe(command[0], command, {**os.environ, INSIDE: "1"})


if __name__ == "__main__":
    main()
