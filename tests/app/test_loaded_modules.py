"""Modules that commands import: help needs no client, and `topic list` only the client for metadata."""

from __future__ import annotations

import subprocess
import sys

HELP = """
import sys
import click
from ottla.app.main import MOUNTED, cli

def explain(command, ctx):
    command.get_help(ctx)
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            if name != "pipeline":  # its modules need those of Spark
                subcommand = command.get_command(ctx, name)
                explain(subcommand, click.Context(subcommand, parent=ctx, info_name=name))

explain(cli, click.Context(cli))
print(*(f"module {name}" for name in sys.modules), sep="\\n")
"""
RUN = """
import sys
from ottla.app.main import main
try:
    main()
except SystemExit:
    pass
print(*(f"module {name}" for name in sys.modules), sep="\\n")
"""
SLOW = ("confluent_kafka", "rich", "ssl", "_ssl", "_hashlib", "asyncio", "email", "http", "cryptography", "logging")
MOST_OF_HELP = 12
"""Modules of Ottla."""
MOST_OF_TOPIC_HELP = 12
"""Modules besides those of `ottla --help`, which are mostly those of click."""
MOST_OF_TOPIC_LIST = 56


def loaded(code: str, *arguments: str) -> set[str]:
    """The modules of a process that runs `code`."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return {line.removeprefix("module ") for line in done.stdout.splitlines() if line.startswith("module ")}


def starting_with(modules: set[str], *prefixes: str) -> list[str]:
    return sorted(name for name in modules if name.startswith(prefixes))


def test_help_of_all_commands_imports_no_client():
    modules = loaded(HELP)
    assert "ottla.cli.topic" in modules
    packages = "client", "protocol", "server", "storage", "quorum", "metadata", "coordinator"
    assert starting_with(modules, *(f"ottla.{name}." for name in packages)) == []
    assert starting_with(modules, *SLOW) == []


def test_help_and_topic_list_stay_within_module_budgets():
    base = loaded(RUN, "--help")
    assert len(starting_with(base, "ottla")) <= MOST_OF_HELP
    topic_help = loaded(RUN, "topic", "--help") - base
    assert len(topic_help) <= MOST_OF_TOPIC_HELP, sorted(topic_help)
    topic_list = loaded(RUN, "topic", "list", "--bootstrap-server", "127.0.0.1:1") - base
    assert "ottla.client.admin.topics" in topic_list
    assert starting_with(topic_list, *SLOW, "ottla.security", "ottla.protocol.messages.create") == []
    assert len(topic_list) <= MOST_OF_TOPIC_LIST, sorted(topic_list)
