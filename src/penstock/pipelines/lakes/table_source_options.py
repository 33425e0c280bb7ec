"""The options of a lake table as a source: how a stream goes through it, and the table's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.spark.options.errors import OptionError
from penstock.spark.options.given import INT_MAX, LONG_MAX, Given

COMMITS_MAX = "maxCommitsPerTrigger"
STARTING = "startingVersion"
EARLIEST = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSourceOptions:
    commits_per_trigger_max: int | None = None
    starts_at_latest: bool = False
    # The first commit that a stream reads; the table as it is counts as one up to there.
    first_version: int = 0
    # For the table itself, such as the catalog of one in Iceberg's format.
    table: Mapping[str, str] = field(default_factory=dict)


def table_source_options(options: Mapping[str, str], table: str) -> TableSourceOptions:
    """Raises LakeRefused; what is not meant for the source is for the table to judge."""
    own = {COMMITS_MAX.lower(), STARTING.lower()}
    given = Given.of(options)
    try:
        starting = given.text_filled(STARTING) or "earliest"
        return TableSourceOptions(
            commits_per_trigger_max=given.number(COMMITS_MAX, least=1, most=INT_MAX),
            starts_at_latest=starting.lower() == "latest",
            first_version=_first_version(given, starting),
            table={name: text for name, text in options.items() if name.lower() not in own},
        )
    except OptionError as refused:
        raise LakeRefused(
            f"The table {table!r} can't be read: {_lower_first(refused)}"
        ) from refused


def _first_version(given: Given, starting: str) -> int:
    if starting.lower() in ("earliest", "latest"):
        return 0
    if not starting.isdecimal() or int(starting) > LONG_MAX:
        raise OptionError(
            f"The option {STARTING} must be earliest, latest or the number of a commit,"
            f' not "{starting}".'
        )
    return int(starting)


def _lower_first(refused: OptionError) -> str:
    text = str(refused)
    return text[0].lower() + text[1:]
