"""Why no plan can be made, each in one sentence."""

from penstock.client.errors import ClientError


class PlanError(ClientError):
    """What the options ask for and what the broker has don't fit together."""
