"""Why the registry refuses a request: Confluent's codes and words, which clients look at."""

from typing import Final

# The code of an incompatible schema is the status itself.
INCOMPATIBLE: Final = 409
SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
NO_SUBJECT_LEVEL: Final = 40408
NO_SUBJECT_MODE: Final = 40409
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
ID_TAKEN: Final = 42207
INVALID_SUBJECT: Final = 42208
SCHEMA_TOO_LARGE: Final = 42209
NOT_SERVED: Final = 422
STORE_FAILED: Final = 50001
TIMED_OUT: Final = 50002

_STATUSES: Final = range(100, 600)


class RegistryError(Exception):
    """A request that is refused: a code for programs, and a sentence for people."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status, which is the code itself or its first three digits."""
        return self.code if self.code in _STATUSES else self.code // 100


class MissingLibrary(RegistryError):
    """What the extra `registry` installs is not there."""

    def __init__(self, what: str) -> None:
        super().__init__(
            501,
            f"{what} needs a library that is not installed on this node: "
            "install the extra 'registry' (pip install 'penstock-mq[registry]').",
        )


def no_subject(subject: str) -> RegistryError:
    return RegistryError(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def no_version(version: object) -> RegistryError:
    return RegistryError(VERSION_NOT_FOUND, f"Version {version} not found.")


def no_schema(schema_id: object = None) -> RegistryError:
    which = "" if schema_id is None else f" {schema_id}"
    return RegistryError(SCHEMA_NOT_FOUND, f"Schema{which} not found")


def invalid_schema(detail: str) -> RegistryError:
    return RegistryError(INVALID_SCHEMA, f"Invalid schema: {detail}")


def not_permitted(message: str) -> RegistryError:
    return RegistryError(NOT_PERMITTED, message)
