"""Groups of commands: with summaries in full, and importing only what is asked for."""

import importlib
from collections.abc import Mapping
from typing import Any

import click

from penstock.cli.failures import OutputClosed

# click cuts the summaries of commands to what fits into one line, unless it is given a limit.
_SUMMARY_CHARACTERS_MAX = 1_000


class CommandGroup(click.Group):
    """A group whose help shows the first sentence of each command, however long it is."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(_SUMMARY_CHARACTERS_MAX))
            for name, command in listed
            if command is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(CommandGroup):
    """`modules` says where each command is; there it has the command's own name."""

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are declared, which is the order of a first tour."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._modules:
            return None
        command = getattr(importlib.import_module(self._modules[cmd_name]), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would answer this with exit code 1 before `main` sees it.
            raise OutputClosed from error
