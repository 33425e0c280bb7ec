"""The reference pages say what the code does: every setting and option, and none that is not."""

import re
from collections.abc import Iterator
from pathlib import Path

import click

from penstock.cli.main import cli
from penstock.config import SETTINGS, Setting

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"


def table_rows(text: str) -> list[tuple[str, ...]]:
    """The cells of every table in a page, without heads and rules."""
    return [
        tuple(cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1])
        for line in text.splitlines()
        if line.startswith("| `")
    ]


def setting_row(setting: Setting) -> tuple[str, ...]:
    default = f"`{setting.default}`" if setting.default else ""
    name = setting.name if setting.in_file else ""
    return (
        f"`{setting.flag} {setting.form}`",
        f"`{setting.environment}`",
        f"`{name}`" if name else "",
        default,
        setting.help,
    )


def commands(
    group: click.Group, context: click.Context, path: str
) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, context, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def option_rows(command: click.Command) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            context = click.Context(command)
            names, text = parameter.get_help_record(context) or ("", "")
            rows.append((f"`{' '.join(names.split())}`", " ".join(text.split())))
    return rows


def takes_settings(path: str) -> bool:
    return path in ("penstock up", "penstock config show")


def flag_of(row: tuple[str, ...]) -> str:
    return row[0].strip("`").split()[0]


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## `(penstock [^`]+)`.*\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_settings_page_has_every_setting_as_it_is() -> None:
    page = (REFERENCE / "settings.md").read_text()
    assert table_rows(page) == [setting_row(setting) for setting in SETTINGS]


def test_the_command_page_has_every_command_in_order() -> None:
    found = [path for path, _ in commands(cli, click.Context(cli), "penstock")]
    assert list(sections((REFERENCE / "cli.md").read_text())) == found


def test_the_command_page_has_every_option_as_it_is() -> None:
    described = sections((REFERENCE / "cli.md").read_text())
    for path, command in commands(cli, click.Context(cli), "penstock"):
        # The flags of a node are the settings page's.
        on_other_page = {setting.flag for setting in SETTINGS} if takes_settings(path) else set()
        expected = [row for row in option_rows(command) if flag_of(row) not in on_other_page]
        assert table_rows(described[path]) == expected, path
