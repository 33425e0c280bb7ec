"""Clusters by name, in a file of the user: where each is, and which one is used."""

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

import click

from penstock.cli.failures import CommandFailed

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
FILE_VARIABLE = "PENSTOCK_PROFILES"
# The address of a broker on this machine goes by this name, so that it can be chosen again.
DEFAULT_PROFILE = "default"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    addresses: dict[str, str]
    # Used by commands that are given neither an address nor a profile.
    current: str | None = None

    def address(self, name: str) -> str:
        """Raises CommandFailed if nobody has added it."""
        if name == DEFAULT_PROFILE:
            return DEFAULT_BOOTSTRAP
        if name not in self.addresses:
            known = ", ".join(sorted(self.addresses)) or "none"
            raise CommandFailed(
                f"There is no profile {name}; the profiles are {known}. Add it with "
                f"`penstock profile add {name} HOST:PORT`."
            )
        return self.addresses[name]

    def added(self, name: str, address: str) -> "Profiles":
        return replace(self, addresses=self.addresses | {name: address})

    def without(self, name: str) -> "Profiles":
        if name == DEFAULT_PROFILE:
            raise CommandFailed(f"Profile {name} can't be removed.")
        self.address(name)
        left = {one: address for one, address in self.addresses.items() if one != name}
        return Profiles(addresses=left, current=None if self.current == name else self.current)

    def using(self, name: str) -> "Profiles":
        if name == DEFAULT_PROFILE:
            return replace(self, current=None)
        self.address(name)
        return replace(self, current=name)


def profiles_path() -> Path:
    chosen = os.environ.get(FILE_VARIABLE)
    return Path(chosen) if chosen else Path(click.get_app_dir("penstock")) / "profiles.toml"


def load_profiles() -> Profiles:
    """Those in the user's file; none if there is no such file."""
    path = profiles_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Profiles(addresses={})
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(path, error) from None
    # Imported here because most users have no such file.
    import tomllib

    try:
        return _parsed(tomllib.loads(text))
    except ValueError as error:
        raise _unreadable(path, error) from None


def save_profiles(profiles: Profiles) -> None:
    """As a whole or not at all."""
    path = profiles_path()
    lines = ["# Written by `penstock profile`."]
    if profiles.current is not None:
        lines.append(f"current = {json.dumps(profiles.current)}")
    for name, address in sorted(profiles.addresses.items()):
        lines += ["", f"[profiles.{name}]", f"bootstrap = {json.dumps(address)}"]
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_text("\n".join(lines) + "\n", encoding="utf-8")
    written.replace(path)


def _parsed(content: dict[str, object]) -> Profiles:
    held = content.get("profiles", {})
    current = content.get("current")
    if not isinstance(held, dict) or not (current is None or isinstance(current, str)):
        raise ValueError("it must have `current`, a name, and tables [profiles.NAME]")
    addresses: dict[str, str] = {}
    for name, table in held.items():
        address = table.get("bootstrap") if isinstance(table, dict) else None
        if not isinstance(address, str) or not NAME.fullmatch(name):
            raise ValueError(f"profile {name!r} has no bootstrap, or its name can't be used")
        addresses[name] = address
    return Profiles(addresses=addresses, current=current)


def _unreadable(path: Path, error: Exception) -> CommandFailed:
    reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
    return CommandFailed(f"The profiles in {path} can't be read: {reason.lower().rstrip('.')}.")
