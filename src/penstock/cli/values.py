"""Positions and times as people type them, as options of commands."""

import time

import click

from penstock.client.positions import POSITION_HELP, parse_kept, parse_position


class PositionType(click.ParamType[object]):
    """A position in a partition; the value is one of `penstock.client.positions`."""

    name = "POSITION"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value
        position = parse_position(value, now_ms=int(time.time() * 1000))
        if position is None:
            self.fail(f"{value!r} is not a position; give {POSITION_HELP}", param, ctx)
        return position


class KeptType(click.ParamType[object]):
    """How much is left at the end of a partition: a number of records, or an age."""

    name = "AMOUNT"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value
        kept = parse_kept(value, now_ms=int(time.time() * 1000))
        if kept is None:
            self.fail(
                f"{value!r} is neither a number of records nor an age such as 2h or 7d", param, ctx
            )
        return kept
