"""JSON that people wrote: read strictly, and within bounds."""

import json
from typing import Any, Final

from penstock.registry.errors import invalid_schema

# Arrays and objects inside each other; what compares schemas follows them.
NESTING_MAX: Final = 200


def read_json(text: str) -> Any:
    """Raises RegistryError for what is not JSON, has a key twice, or is nested too deeply."""
    try:
        found = json.loads(text, parse_constant=_refuse, object_pairs_hook=_once_each)
    except RecursionError:
        raise invalid_schema("it is nested too deeply.") from None
    except ValueError as bad:
        raise invalid_schema(f"it is not JSON: {bad}.") from None
    check_nesting(found)
    return found


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def compact_sorted(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def check_nesting(value: Any) -> None:
    """Level by level, so that no depth of it is too much for this check."""
    level = [value]
    for _ in range(NESTING_MAX):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise invalid_schema(f"it has more than {NESTING_MAX} arrays or objects inside each other.")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a value of JSON")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return found
