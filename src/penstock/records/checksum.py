"""CRC-32C, from the `crc32c` package.

Its extension module is loaded without the package around it: that pulls in a command line and the
package's own metadata, which took a tenth of the time that a node has to start.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias

Checksum: TypeAlias = Callable[..., int]


def _load() -> Checksum:
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("_crc32c", places) if places else None
    if spec is None or spec.loader is None:
        # Another build of the package: the usual way works with all of them.
        from crc32c import crc32c as found

        return found  # type: ignore[no-any-return, unused-ignore]
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Checksum = module.crc32c
    return function


# Takes any buffer, and optionally the checksum of what came before it.
crc32c: Checksum = _load()
