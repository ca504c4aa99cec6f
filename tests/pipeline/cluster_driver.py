"""Commands of `ottla pipeline` on a cluster, all in one session: `cluster_driver.py SETTINGS`

SETTINGS is JSON: `master`; `conf` of the session; `commands`, lists of arguments to which `--json` and `--master` are
added. Prints a JSON list of what each command said.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import Any

from click.testing import CliRunner

from ottla.pipeline import cli
from ottla.pipeline.session import open_session


def main(settings: dict[str, Any]) -> None:
    told = []
    with open_session(settings["master"], "ottla cluster tests", settings["conf"]) as spark:
        for name in ("load", "replay", "snapshot", "sql"):
            vars(sys.modules[f"ottla.pipeline.cli.{name}"]).update(open_session=lambda *_: nullcontext(spark))
        for command in settings["commands"]:
            by_spark = [] if command[0] == "push" else ["--master", settings["master"]]
            result = CliRunner().invoke(cli.pipeline, [*command, "--json", *by_spark])
            if result.exit_code:
                sys.exit(f"{command}: {result.output}{result.exception!r}")
            told.append(json.loads(result.stdout))
    print(json.dumps(told))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
