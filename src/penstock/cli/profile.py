"""`penstock profile`: names for clusters, so that commands find them without an address."""

import click

from penstock.cli.failures import CommandFailed
from penstock.cli.lazy_group import CommandGroup
from penstock.cli.options import check_addresses, json_option
from penstock.cli.output import print_json, print_table
from penstock.cli.profiles import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_PROFILE,
    NAME,
    load_profiles,
    profiles_path,
    save_profiles,
)


@click.group(cls=CommandGroup)
def profile() -> None:
    """Give clusters names, and choose the one that commands use."""


@profile.command()
@click.argument("name")
@click.argument("bootstrap", metavar="HOST:PORT")
@click.option("--use", "is_used", is_flag=True, help="Also switch to this profile.")
@click.option("--replace", is_flag=True, help="Change the address of a profile that exists.")
@json_option
def add(name: str, bootstrap: str, is_used: bool, replace: bool, as_json: bool) -> None:
    """Give a cluster a name; separate several addresses with commas."""
    if not NAME.fullmatch(name) or name == DEFAULT_PROFILE:
        raise click.UsageError(
            f"{name!r} can't be the name of a profile: use letters, digits, - and _, but not "
            f"{DEFAULT_PROFILE!r}"
        )
    check_addresses(bootstrap)
    profiles = load_profiles()
    if name in profiles.addresses and not replace:
        raise CommandFailed(
            f"Profile {name} already exists, for {profiles.addresses[name]}; --replace changes it."
        )
    profiles = profiles.added(name, bootstrap)
    save_profiles(profiles.using(name) if is_used else profiles)
    if as_json:
        print_json({"profile": name, "bootstrap": bootstrap, "used": is_used})
    else:
        click.echo(f"Profile {name} is {bootstrap}{', and is used from now on' * is_used}.")


@profile.command()
@click.argument("name")
@json_option
def use(name: str, as_json: bool) -> None:
    """Make commands without an address use this cluster; `default` is the local broker."""
    profiles = load_profiles().using(name)
    save_profiles(profiles)
    address = DEFAULT_BOOTSTRAP if profiles.current is None else profiles.address(name)
    if as_json:
        print_json({"profile": name, "bootstrap": address})
    else:
        click.echo(f"Commands without an address now use {name}, which is {address}.")


@profile.command("list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List the profiles with their addresses, and show which one is used."""
    profiles = load_profiles()
    used = profiles.current or DEFAULT_PROFILE
    rows = [(DEFAULT_PROFILE, DEFAULT_BOOTSTRAP), *sorted(profiles.addresses.items())]
    if as_json:
        print_json(
            [
                {"profile": name, "bootstrap": address, "used": name == used}
                for name, address in rows
            ]
        )
        return
    print_table(
        ("profile", "bootstrap", "used"),
        [(name, address, "yes" if name == used else None) for name, address in rows],
    )


@profile.command()
@click.argument("name")
@json_option
def remove(name: str, as_json: bool) -> None:
    """Remove a profile; the cluster itself does not change."""
    save_profiles(load_profiles().without(name))
    if as_json:
        print_json({"profile": name, "removed": True})
    else:
        click.echo(f"Profile {name} removed from {profiles_path()}.")
