"""Which datasets a dataset is made of, so that a test needs only those."""

from collections.abc import Iterable

from penstock.pipelines.specification.model import REJECTED, UNDECODABLE, Pipeline


def owner_of(pipeline: Pipeline, dataset: str) -> str | None:
    """The source or step that a dataset belongs to: itself, or the one that it is beside."""
    known = {*pipeline.sources, *pipeline.steps}
    if dataset in known:
        return dataset
    for ending in (UNDECODABLE, REJECTED):
        if dataset.endswith(ending) and dataset.removesuffix(ending) in known:
            return dataset.removesuffix(ending)
    return None


def reached_from(pipeline: Pipeline, datasets: Iterable[str]) -> set[str]:
    """These datasets and all from which they are computed, with what is beside those."""
    waiting = list(datasets)
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        owner = owner_of(pipeline, name)
        if owner is None or name in reached:
            continue
        reached |= {name, owner}
        step = pipeline.steps.get(owner)
        waiting += step.inputs if step is not None else ()
    return reached


def sources_of(pipeline: Pipeline, datasets: Iterable[str]) -> set[str]:
    """The names of all sources from which these datasets are computed."""
    return reached_from(pipeline, datasets) & set(pipeline.sources)
