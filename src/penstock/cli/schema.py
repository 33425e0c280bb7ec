"""`penstock schema`: list, show, register, check and delete the schemas of a registry."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.lazy_group import CommandGroup
from penstock.cli.options import json_option, timeout_option
from penstock.cli.output import print_json, print_table
from penstock.client.registry import DEFAULT_REGISTRY

if TYPE_CHECKING:
    from penstock.client.registry import RegistryClient

Command = TypeVar("Command", bound=Callable[..., Any])
# Types by the ending of a file's name.
ENDINGS = {".avsc": "AVRO", ".avro": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
TYPES = ("AVRO", "JSON", "PROTOBUF")


def registry_options(command: Command) -> Command:
    address = click.option(
        "--registry",
        "-r",
        metavar="URL",
        default=DEFAULT_REGISTRY,
        show_default=True,
        envvar="PENSTOCK_REGISTRY",
        show_envvar=True,
        help="Where the registry is: the HTTP address of any node.",
    )
    return address(timeout_option(json_option(command)))


def schema_options(command: Command) -> Command:
    kind = click.option(
        "--type",
        "kind",
        type=click.Choice(TYPES, case_sensitive=False),
        help="Type of the schema; by default, the ending of FILE says it (.avsc, .json, .proto).",
    )
    references = click.option(
        "--reference",
        "references",
        multiple=True,
        metavar="NAME=SUBJECT:VERSION",
        help="A registered schema that this one uses, under NAME; may be repeated.",
    )
    return kind(references(command))


@click.group(cls=CommandGroup)
def schema() -> None:
    """List, show, register, check and delete schemas."""


@schema.command("list")
@click.option("--all", "is_all", is_flag=True, help="All versions, not only the latest.")
@click.option("--deleted", is_flag=True, help="Also list what was deleted, but not for good.")
@registry_options
def list_schemas(
    is_all: bool, deleted: bool, registry: str, timeout_s: float, as_json: bool
) -> None:
    """List subjects with their latest version."""
    found = _client(registry, timeout_s).schemas(deleted=deleted, latest_only=not is_all)
    if as_json:
        print_json(found)
        return
    rows = [
        (each["subject"], each["version"], each["id"], each.get("schemaType", "AVRO"))
        for each in found
    ]
    print_table(("subject", "version", "id", "type"), rows)


@schema.command()
@click.argument("subject")
@click.option("--version", "number", default="latest", show_default=True, help="Which version.")
@registry_options
def show(subject: str, number: str, registry: str, timeout_s: float, as_json: bool) -> None:
    """Print the schema of a subject, or of an id: SUBJECT may be a number."""
    client = _client(registry, timeout_s)
    is_id = subject.isdecimal() and number == "latest"
    found = client.schema(int(subject)) if is_id else client.version(subject, number)
    if as_json:
        print_json(found)
        return
    text = found["schema"]
    if found.get("schemaType", "AVRO") != "PROTOBUF":
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    click.echo(text.rstrip("\n"))


@schema.command()
@click.argument("subject")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@schema_options
@click.option(
    "--normalize",
    is_flag=True,
    help="Normalize the schema first, so that differences in formatting do not count.",
)
@registry_options
def register(
    subject: str,
    file: str,
    kind: str | None,
    references: tuple[str, ...],
    normalize: bool,
    registry: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Register the schema in FILE as the next version of SUBJECT; - reads standard input."""
    text, wanted = _read(file, kind)
    client = _client(registry, timeout_s)
    found = client.register(
        subject, text, wanted, list(map(_reference, references)), normalize=normalize
    )
    if as_json:
        print_json(found)
    else:
        version = f" as version {found['version']}" if "version" in found else ""
        click.echo(f"{subject} has the schema{version}, with the id {found['id']}.")


@schema.command()
@click.argument("subject")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@schema_options
@registry_options
def check(
    subject: str,
    file: str,
    kind: str | None,
    references: tuple[str, ...],
    registry: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Say whether the schema in FILE could be the next version of SUBJECT."""
    text, wanted = _read(file, kind)
    client = _client(registry, timeout_s)
    faults = client.faults(subject, text, wanted, list(map(_reference, references)))
    if as_json:
        print_json({"is_compatible": faults is None, "messages": faults or []})
    elif faults is None:
        click.echo(f"The schema fits {subject} ({client.level(subject)}).")
    if faults is not None:
        if not as_json:
            for fault in faults:
                click.echo(fault)
        raise CommandFailed(f"The schema does not fit {subject} ({client.level(subject)}).")


@schema.command()
@click.argument("subject")
@click.option("--version", "number", help="Only this version.")
@click.option(
    "--permanent", is_flag=True, help="Delete for good what was already deleted without this flag."
)
@registry_options
def delete(
    subject: str,
    number: str | None,
    permanent: bool,
    registry: str,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Delete a subject. Its ids can still be looked up, until it is deleted permanently."""
    gone = _client(registry, timeout_s).delete(subject, number, permanent=permanent)
    if as_json:
        print_json({"subject": subject, "versions": gone, "permanent": permanent})
    else:
        numbers = ", ".join(map(str, gone))
        click.echo(f"{subject}: deleted {'for good ' if permanent else ''}version {numbers}.")


def _client(registry: str, timeout_s: float) -> "RegistryClient":
    from penstock.client.registry import RegistryClient

    return RegistryClient(registry, timeout_s=timeout_s)


def _read(file: str, kind: str | None) -> tuple[str, str]:
    """The text and the type."""
    found = kind or ENDINGS.get(Path(file).suffix.lower())
    if found is None:
        raise click.UsageError(f"{file!r} does not say what it is: add --type")
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except UnicodeDecodeError:
        raise CommandFailed(f"{file} is not UTF-8.") from None
    return text, found.upper()


def _reference(text: str) -> dict[str, Any]:
    name, _, place = text.rpartition("=")
    subject, _, version = place.rpartition(":")
    if not name or not subject or not version.isdecimal():
        raise click.BadParameter(f"{text!r} is not NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}
