"""Writes `docs/configuration.md` from the config tables, so that the page can't say anything else than the code.

`make docs` runs it; with `--check`, as `make check` has it, it writes nothing and fails while the page is another one.
`tests/style/test_docs.py` does the same.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from ottla.common.config.config_def import markdown
from ottla.common.config.config_keys_broker import BROKER_CONFIGS
from ottla.common.config.group_configs import GROUP_CONFIGS
from ottla.common.config.topic_configs import TOPIC_CONFIGS
from ottla.common.config.unsupported_configs import INERT_CONFIGS, SECURITY_CONFIGS, SECURITY_PREFIXES, STORED_CONFIGS

PAGE = Path(__file__).with_name("configuration.md")

HEAD = """\
# Configuration

Made by `make docs` from the tables that the broker itself uses; don't edit it by hand. Names, units and meanings
are Apache Kafka's. `null` is "not set"; numbers of 2^31-1 and 2^63-1 mean "no limit".

Where a value comes from, best first: the topic's own, changed at run time for this broker, changed at run time for all
brokers, `--set` and the shorthands of `ottla start`, the `server.properties` file, the default. `ottla config describe`
shows value and source of each.

## Of a topic

Set by `ottla topic create --config`, `ottla topic alter --config` and `ottla config alter topic`. Without it a topic
takes the broker setting that the section below calls "default of" it.

"""

GROUP = """
## Of a group

Set by `ottla config alter group` or Apache Kafka's tools with the resource type GROUP, for an id, whether there is a
group or not; for groups of the consumer protocol (KIP-848). Each must lie between the broker's `group.consumer.min.*`
and `group.consumer.max.*` of that name, whose defaults leave some of them no room.

"""

BROKER = """
## Of the broker

In `server.properties` or by `--set`. Those with the update mode `cluster-wide` also change while the broker runs, by
`ottla config alter broker`. The defaults are Kafka's, except that `node.id`, `process.roles`, `listeners` and `log.dir`
have values with which `ottla start` works without a file, and that the system sizes the buffers of sockets, with a
backlog of 1024.

"""

RECOVERY = """
### When a setting locks everybody out

A dynamic limit of 0 connections for everybody is refused, and a stored one is ignored with an error in the log.
Another dynamic setting or a quota can lock everybody out too, such as a limit of few connections or a wrong
certificate. The way back is on the host of each such node:

1. Stop the node. Run `ottla config recover --data-dir DIR --ignore NAME`, with one of its `log.dirs`. `NAME` is a
   dynamic setting, also of one listener, or `quotas`, or `all`; the option may be repeated. Of a cluster that
   `ottla start --brokers` runs, `DIR` is the directory of one broker.
2. Start the node. It logs a warning that names what it ignores.
3. Correct what is stored by `ottla config alter broker` or `ottla quota remove`.
4. Run `ottla config recover --data-dir DIR --end` and start the node again.

The command does not change the metadata, and other nodes keep the settings. It does not change ACLs either:
`super.users` of `server.properties` have all rights, whatever the ACLs are.
"""

INERT = """
## Known, without effect

These give one warning at the start, with the reason, and change nothing.

"""

STORED = """
In the tables above, stored and described, and not acted upon either, like the topic settings that they are defaults of:

"""

SECURITY = """
## Security settings

Those of TLS are above, and may be given to one listener by `listener.name.<name>.` before the name. Others are not
implemented, and a broker that is asked for one refuses to start rather than run open. That is each of these with
another value than the one shown, every other name with `.sasl.` in it or one of these at its beginning: {prefixes}.

"""


def configuration_page() -> str:
    """The whole page."""
    parts = [
        HEAD,
        markdown(TOPIC_CONFIGS),
        GROUP,
        markdown(GROUP_CONFIGS),
        BROKER,
        markdown(BROKER_CONFIGS),
        RECOVERY,
        INERT,
        _inert(INERT_CONFIGS),
    ]
    parts += [STORED, _inert(STORED_CONFIGS)]
    prefixes = ", ".join(f"`{prefix}`" for prefix in SECURITY_PREFIXES)
    parts += [SECURITY.format(prefixes=prefixes), _security(SECURITY_CONFIGS)]
    return "".join(parts)


def _inert(reasons: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(name)
    lines = ["| why | settings |", "| --- | --- |"]
    lines += [f"| {why} | {', '.join(f'`{name}`' for name in sorted(names))} |" for why, names in by_reason.items()]
    return "\n".join(lines) + "\n"


def _security(harmless: Mapping[str, str | None]) -> str:
    lines = ["| setting | value that asks for nothing |", "| --- | --- |"]
    lines += [f"| `{name}` | {f'`{value}`' if value else 'empty'} |" for name, value in sorted(harmless.items())]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """1 for a page that is old when it is only to be checked."""
    page = configuration_page()
    if arguments == ["--check"]:
        if PAGE.read_text(encoding="utf-8") == page:
            return 0
        print(f"docs/{PAGE.name} is old: run `make docs`", file=sys.stderr)
        return 1
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
