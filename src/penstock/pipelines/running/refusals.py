"""Why a pipeline does not run, or runs no more."""

from penstock.model.errors import Explained


class RunRefused(Explained):
    """A pipeline is not started, or can't go on; the text is one sentence that names the place."""


class FlowFailed(RunRefused):
    """A flow ended with an error while it ran; the others were stopped after their batch."""

    def __init__(self, flow: str, sentence: str) -> None:
        super().__init__(f"The flow {flow} failed: {sentence}")
        self.flow = flow
        self.sentence = sentence
