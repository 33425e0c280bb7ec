"""Every metric that a node or a pipeline has: the one table of names, kinds, labels and help.

The text for Prometheus (`exposition.py`), the reference page and the tests of dashboards and alert
rules follow from it. A sample of a family that is not here can't be shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from penstock.observe.instruments import LATENCY_BOUNDS

# Labels, in the order of the family, and a value: of a histogram what `Histogram.sample` gives.
Sample: TypeAlias = tuple[Sequence[str], float | Sequence[float]]
Samples: TypeAlias = Mapping[str, Sequence[Sample]]

# What shares one series because there are too many for one each. No topic can be called so.
OTHERS: Final = "(others)"


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    # As samples are called; a counter's ends in `_total`.
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    # Of a histogram.
    bounds: tuple[float, ...] = ()

    def series(self) -> tuple[str, ...]:
        """The names that its samples have."""
        if self.kind is Kind.HISTOGRAM:
            return f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count"
        return (self.name,)


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(name=f"{name}_total", kind=Kind.COUNTER, help=text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name=name, kind=Kind.GAUGE, help=text, labels=labels)


def _latency(name: str, text: str, *labels: str) -> Family:
    return Family(name=name, kind=Kind.HISTOGRAM, help=text, labels=labels, bounds=LATENCY_BOUNDS)


NODE_FAMILIES: Final = (
    # Requests and connections
    _latency(
        "penstock_request_seconds",
        "Time from the start of a request to its answer, waits for records included.",
        "door",
        "api",
    ),
    _counter(
        "penstock_request_errors",
        "Requests, or partitions in produce and fetch requests, that were answered with an error.",
        "door",
        "api",
        "code",
    ),
    _gauge("penstock_connections", "Open connections of clients.", "door"),
    _counter("penstock_connections_opened", "Connections of clients that were opened.", "door"),
    _gauge("penstock_http_open_streams", "Readers of server-sent events."),
    # Records
    _counter(
        "penstock_topic_records_in",
        "Records written to partitions that this node led.",
        "topic",
    ),
    _counter("penstock_topic_bytes_in", "Bytes written to partitions that this node led.", "topic"),
    _counter(
        "penstock_topic_records_out",
        "Records sent to consumers; where an answer ends inside a segment, as exact as its index.",
        "topic",
    ),
    _counter("penstock_topic_bytes_out", "Bytes of records sent to consumers.", "topic"),
    _gauge("penstock_topic_log_bytes", "Bytes of the topic's logs on this node.", "topic"),
    # What a write waits for
    _latency(
        "penstock_write_queue_seconds",
        "Wait of entries until a disk thread began to write them.",
    ),
    _latency("penstock_sync_seconds", "Time of a write to a log with its sync."),
    _latency(
        "penstock_replication_seconds",
        "Wait from the leader's own sync until enough replicas had the entries.",
    ),
    _gauge("penstock_unflushed_bytes", "Bytes taken from producers that are not safe yet."),
    _gauge(
        "penstock_disk_waiting_seconds",
        "How long the disk has been at work on the oldest write that is not done.",
    ),
    # Partitions
    _gauge("penstock_topics", "Topics of the cluster."),
    _gauge("penstock_partition_replicas", "Replicas of partitions on this node."),
    _gauge(
        "penstock_partition_replicas_stopped",
        "Replicas on this node that stopped because of damage.",
    ),
    _gauge("penstock_partitions_led", "Partitions that this node leads."),
    _gauge(
        "penstock_partitions_under_replicated",
        "Partitions led here that lack replicas in sync.",
    ),
    _gauge(
        "penstock_partitions_without_leader",
        "Replicas on this node that know no leader of their partition.",
    ),
    _gauge("penstock_log_bytes", "Bytes of all logs on this node."),
    _counter("penstock_elections_won", "Elections of partitions and metadata that this node won."),
    _gauge("penstock_term_max", "The highest term of the partitions on this node."),
    _counter("penstock_in_sync_shrinks", "Times that a replica left an in-sync set led here."),
    _counter("penstock_in_sync_growths", "Times that a replica joined an in-sync set led here."),
    # Groups: on the node that coordinates the group
    _gauge("penstock_groups", "Groups that this node coordinates."),
    _gauge(
        "penstock_group_lag_records",
        "Records behind the committed offsets of a group, over the topic's partitions.",
        "group",
        "topic",
    ),
    _gauge(
        "penstock_group_lag_seconds",
        "Age of the oldest record behind the committed offsets; 0 when there is none.",
        "group",
        "topic",
    ),
    # Queues: states on the node that stores the group's state, counts where the partition is led
    _gauge("penstock_queue_depth", "Records of a queue that are not done.", "group", "topic"),
    _gauge("penstock_queue_leased", "Records that consumers have.", "group", "topic"),
    _gauge("penstock_queue_delayed", "Records that wait for their time.", "group", "topic"),
    _gauge(
        "penstock_queue_dying",
        "Records that were given up and are not in the dead-letter topic yet.",
        "group",
        "topic",
    ),
    _gauge(
        "penstock_queue_oldest_seconds",
        "Age of the first record that is not done; 0 when there is none.",
        "group",
        "topic",
    ),
    _counter("penstock_queue_deliveries", "Attempts to deliver a record.", "group", "topic"),
    _counter(
        "penstock_queue_redeliveries",
        "Attempts to deliver a record after its first.",
        "group",
        "topic",
    ),
    _counter("penstock_queue_dead_letters", "Records that were given up.", "group", "topic"),
    # The process and its machine
    _gauge("penstock_node_info", "1, with the node's number and version.", "node", "version"),
    _gauge("penstock_is_controller", "1 on the node that leads the metadata, else 0."),
    _gauge("penstock_nodes", "Nodes of the cluster."),
    _gauge("penstock_nodes_alive", "Nodes of the cluster that this one reaches."),
    _latency("penstock_loop_delay_seconds", "How late the event loop ran a timer, ten a second."),
    _counter("penstock_cold_reads", "Reads for consumers that went through a disk thread."),
    _gauge("penstock_cold_reads_waiting", "Reads that wait for a disk thread."),
    _gauge("penstock_disk_free_bytes", "Free bytes of the disk with the node's data."),
    _gauge("penstock_disk_size_bytes", "Size of the disk with the node's data."),
    _gauge("process_resident_memory_bytes", "Memory of the broker's process."),
    _counter("process_cpu_seconds", "CPU time of the broker's process."),
    _gauge("process_open_fds", "Open files of the broker's process."),
    _gauge("process_max_fds", "Files that the broker's process may open."),
    _gauge("process_start_time_seconds", "When the broker's process started, since 1970."),
    _counter("python_gc_collections", "Collections by Python's collector.", "generation"),
    # What clients say of themselves (KIP-714)
    _gauge(
        "penstock_client_metric",
        "The last value that a client pushed (KIP-714).",
        "client_id",
        "instance",
        "metric",
    ),
    # Traces
    _counter("penstock_spans_exported", "Spans that the OpenTelemetry collector took."),
    _counter(
        "penstock_spans_dropped",
        "Spans that nobody gets: `failed` to be sent, found the queue `full`, or were never made "
        "because too much was going on (`untracked`, `unwatched`).",
        "reason",
    ),
    # The metrics themselves
    _gauge(
        "penstock_series_left_out",
        "Topics, groups, queues and clients without series of their own: there are too many.",
        "family",
    ),
    _gauge("penstock_scrape_seconds", "Time that the broker took to collect this."),
    _gauge(
        "penstock_scrape_turn_seconds",
        "The most CPU time for which collecting this kept the event loop.",
    ),
)

PIPELINE_FAMILIES: Final = (
    _gauge("penstock_pipeline_info", "1, with the name of the pipeline.", "pipeline"),
    _gauge("penstock_pipeline_flow_state", "1 for the state that a flow is in.", "flow", "state"),
    _counter("penstock_pipeline_rows_in", "Rows read in this run.", "flow"),
    _counter("penstock_pipeline_rows_out", "Rows written in this run.", "flow"),
    _counter("penstock_pipeline_batches", "Micro-batches that ended in this run.", "flow"),
    _counter(
        "penstock_pipeline_dead_letters",
        "Records that could not be decoded in this run.",
        "flow",
    ),
    _counter("penstock_pipeline_broken_rules", "Rows that broke a rule in this run.", "flow"),
    _counter(
        "penstock_pipeline_late_rows", "Rows dropped behind the watermark in this run.", "flow"
    ),
    _gauge("penstock_pipeline_rows_per_second", "Rows per second of the last batch.", "flow"),
    _gauge("penstock_pipeline_batch_seconds", "Time that the last batch took.", "flow"),
    _gauge("penstock_pipeline_lag_records", "Records that are not read yet.", "flow", "topic"),
    _gauge(
        "penstock_pipeline_last_batch_time_seconds",
        "When the last batch ended, since 1970.",
        "flow",
    ),
)

FAMILIES: Final[Mapping[str, Family]] = MappingProxyType(
    {family.name: family for family in (*NODE_FAMILIES, *PIPELINE_FAMILIES)}
)
