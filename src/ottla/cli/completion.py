"""`ottla completion`: scripts for shell completion of commands, options, and names such as those of topics."""

from __future__ import annotations

import click

from ottla.cli.command import Command

PROGRAM = "ottla"
COMPLETE_VARIABLE = "_OTTLA_COMPLETE"


@click.command(
    cls=Command,
    examples=(
        'eval "$(ottla completion bash)"                                # in ~/.bashrc',
        'eval "$(ottla completion zsh)"                                 # in ~/.zshrc',
        "ottla completion fish > ~/.config/fish/completions/ottla.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell completion script."""
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise click.UsageError(f"no completion for {shell}", ctx)
    script = completion_class(ctx.find_root().command, {}, PROGRAM, COMPLETE_VARIABLE)
    click.echo(script.source_template % script.source_vars())
