"""Whether this Python was compiled with profiles of how it runs (PGO), as those of distributions,
of python.org, of conda and of Docker's images are; as a program, it exits with 1 if it was not."""

import sys
import sysconfig


def is_optimised() -> bool:
    """A build from source names in PGO_PROF_USE_FLAG the flags that it would have used. Debian has
    its own way of using profiles, and leaves that name out."""
    asked = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return asked or not sysconfig.get_config_var("PGO_PROF_USE_FLAG")


if __name__ == "__main__":
    sys.exit(not is_optimised())
