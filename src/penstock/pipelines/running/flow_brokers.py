"""Which brokers a flow needs: those of the topics that it reads, however far away, and writes."""

from penstock.pipelines.specification.lineage import sources_of
from penstock.pipelines.specification.model import Flow, Pipeline, TopicSink, TopicSource
from penstock.spark.options.given import Given
from penstock.spark.options.kafka_settings import BOOTSTRAP


def brokers_by_flow(pipeline: Pipeline) -> dict[str, list[str]]:
    """By flow, the addresses as the file has them; several brokers of a cluster are one."""
    return {flow.name: _brokers(pipeline, flow) for flow in pipeline.flows.values()}


def _brokers(pipeline: Pipeline, flow: Flow) -> list[str]:
    sources = (pipeline.sources[name] for name in sorted(sources_of(pipeline, [flow.input])))
    topics = (one for one in (*sources, flow.sink) if isinstance(one, TopicSource | TopicSink))
    found = (Given.of(one.options).text(BOOTSTRAP) for one in topics)
    return list(dict.fromkeys(address for address in found if address))
