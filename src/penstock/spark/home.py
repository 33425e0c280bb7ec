"""A home for Spark in which its Python processes start faster.

Spark puts `python/lib/pyspark.zip` of its home before everything else that its Python processes may
import. Python keeps no compiled code for what is in an archive, so each of them compiles pyspark
again: most of the time that it needs to start. This home is pyspark's own folder, by links, without
the archive. Python then imports pyspark from where it is installed, which is the same code.

It serves only where the tasks run beside the driver: a cluster may want to be sent the archive.
"""

import tempfile
from pathlib import Path

# The folder of the archive.
_LEFT_OUT = "python"


def make_home(home: Path) -> Path:
    """See to it that the home is there; the first of several that make it does so for all.

    Raises OSError where there can be no links.
    """
    import pyspark

    package = Path(pyspark.__file__).resolve().parent

    def is_made() -> bool:
        return (home / "jars").resolve() == package / "jars"

    if is_made():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as folder:
        made = Path(folder) / "home"
        made.mkdir()
        for path in package.iterdir():
            if path.name != _LEFT_OUT:
                (made / path.name).symlink_to(path)
        if home.exists() and not is_made():
            # It belongs to another pyspark.
            home.rename(Path(folder) / "before")
        try:
            made.rename(home)
        except OSError:
            if not is_made():
                raise
    return home
