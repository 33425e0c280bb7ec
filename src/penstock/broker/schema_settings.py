"""Whether a topic may ask for the validation of schemas on this node."""

from collections.abc import Mapping

from penstock.cluster.settings import invalid
from penstock.cluster.topic_settings import KEY_VALIDATION, VALUE_VALIDATION
from penstock.model.errors import Reason, Refused
from penstock.registry.libraries import missing_libraries


def fault_of_validation(given: Mapping[str, str | None]) -> Refused | None:
    """Where no schema can be registered, a topic that asks for one would refuse every record."""
    asked = [name for name in (KEY_VALIDATION, VALUE_VALIDATION) if _is_on(given.get(name))]
    missing = missing_libraries() if asked else []
    if not missing:
        return None
    fault = (
        "the schema registry of this node needs the extra 'registry' (pip install "
        f"'penstock-mq[registry]'): {', '.join(missing)} can't be found"
    )
    return Refused(Reason.INVALID_CONFIG, invalid(asked[0], "true", fault))


def _is_on(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"
