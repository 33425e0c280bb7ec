"""Where an Iceberg table is registered: in a SQLite file in its own folder, or in a user's catalog.

The options are `catalog` (a name in pyiceberg's own configuration), `uri`, `namespace`, `table`,
`snapshotsKept`, and `catalog.<property>` for whatever else pyiceberg's catalogs take.
"""

import contextlib
import os
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.pipelines.lakes.durable_files import make_folders, sync_path
from penstock.pipelines.lakes.lake_table import LakeRefused
from penstock.spark.options.misspelt import nearest, nearest_hint

OPTION_NAMES = ("catalog", "uri", "namespace", "table", "snapshotsKept")
PROPERTY_PREFIX = "catalog."
OWN_CATALOG = "catalog.db"
NAME_DEFAULT = "penstock"
# A writer holds SQLite's lock for a few milliseconds; many of them may wait in a row.
_LOCK_TIMEOUT_S = 30
_SNAPSHOTS_KEPT_DEFAULT = 100
_ODD = re.compile(r"\W")


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPlace:
    """Which table in which catalog; `properties` None stands for the table's own SQLite file."""

    root: str
    namespace: str
    table: str
    snapshots_kept: int
    catalog: str = NAME_DEFAULT
    properties: Mapping[str, str] | None = None

    @property
    def identifier(self) -> tuple[str, ...]:
        return (*self.namespace.split("."), self.table)

    @property
    def own_file(self) -> str:
        return f"{self.root}/{OWN_CATALOG}"

    @property
    def may_exist(self) -> bool:
        """Whether there can be a catalog; looking into SQLite would make the file."""
        return self.properties is not None or os.path.exists(self.own_file)


def catalog_place(root: str, options: Mapping[str, str]) -> CatalogPlace:
    """The options checked; raises LakeRefused with one sentence."""
    _check_names(root, options)
    properties = {
        name.removeprefix(PROPERTY_PREFIX): value
        for name, value in options.items()
        if name.startswith(PROPERTY_PREFIX)
    }
    if "uri" in options:
        properties["uri"] = options["uri"]
    is_own = not properties and "catalog" not in options
    return CatalogPlace(
        root=root,
        namespace=options.get("namespace", NAME_DEFAULT),
        table=options.get("table") or _ODD.sub("_", os.path.basename(root)) or "rows",
        snapshots_kept=_snapshots_kept(root, options),
        catalog=options.get("catalog", NAME_DEFAULT),
        properties=None if is_own else properties,
    )


def open_catalog(place: CatalogPlace) -> Any:
    """A catalog of pyiceberg's; makes the SQLite file if that is where the table is registered."""
    if place.properties is None:
        return _own_catalog(place)
    from pyiceberg.catalog import load_catalog

    try:
        return load_catalog(place.catalog, **place.properties)
    except Exception as failure:
        reason = str(failure).splitlines()[0].rstrip(".")
        raise LakeRefused(
            f"The catalog {place.catalog!r} of the table {place.root!r} can't be opened: {reason}."
        ) from failure


def _own_catalog(place: CatalogPlace) -> Any:
    """Anyone who sees the file finds a catalog in it: it gets its name when it is complete."""
    if not os.path.exists(place.own_file):
        make_folders(place.root, ".")
        draft = f"{place.root}/.{uuid.uuid4().hex}.draft"
        try:
            catalog = _sqlite_catalog(place, draft)
            catalog.create_namespace(place.namespace)
            catalog.close()
            with contextlib.suppress(FileExistsError):
                os.link(draft, place.own_file)
        finally:
            os.unlink(draft)
        sync_path(place.root)
    return _sqlite_catalog(place, place.own_file)


def _sqlite_catalog(place: CatalogPlace, path: str) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy import URL

    from penstock.pipelines.lakes.iceberg_files import DURABLE_FILES

    # An object and not a text, because a path may hold signs that mean something in an address.
    address: Any = URL.create("sqlite", database=path, query={"timeout": str(_LOCK_TIMEOUT_S)})
    return SqlCatalog(place.catalog, **{"uri": address, "py-io-impl": DURABLE_FILES})


def _check_names(root: str, options: Mapping[str, str]) -> None:
    for name in options:
        if name not in OPTION_NAMES and not name.startswith(PROPERTY_PREFIX):
            hint = nearest_hint(nearest(name, OPTION_NAMES))
            raise LakeRefused(f"The Iceberg table {root!r} has no option {name}{hint}.")
        if not options[name].strip():
            raise LakeRefused(f"The option {name} of the Iceberg table {root!r} is empty.")


def _snapshots_kept(root: str, options: Mapping[str, str]) -> int:
    text = options.get("snapshotsKept", str(_SNAPSHOTS_KEPT_DEFAULT))
    if not text.isdecimal() or int(text) < 1:
        raise LakeRefused(
            f"The option snapshotsKept of the Iceberg table {root!r} must be a positive whole"
            f" number, not {text!r}."
        )
    return int(text)
