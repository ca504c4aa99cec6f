"""Commands of `ottla pipeline` on a cluster, all in one session: `cluster_driver.py SETTINGS`

SETTINGS is JSON: `master`; `conf` of the session; `commands`, lists of arguments to which `--json` and `--master` are
added. Prints a JSON list of what each command said, for one that was refused its sentence.
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import nullcontext
from typing import Any

from click.testing import CliRunner

from ottla.app import main as command_line
from ottla.pipeline.session import open_session


def main(settings: dict[str, Any]) -> None:
    told = []
    with open_session(settings["master"], "ottla cluster tests", settings["conf"]) as spark:
        for name in ("load", "replay", "snapshot", "sql"):
            module = importlib.import_module(f"ottla.pipeline.cli.{name}")
            vars(module).update(open_session=lambda *_: nullcontext(spark))
        for command in settings["commands"]:
            by_spark = [] if command[0] == "push" else ["--master", settings["master"]]
            result = CliRunner().invoke(command_line.cli, ["pipeline", *command, "--json", *by_spark])
            if result.exit_code not in (0, 2):
                sys.exit(f"{command}: {result.output}{result.exception!r}")
            told.append(result.stderr if result.exit_code else json.loads(result.stdout))
    print(json.dumps(told))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
