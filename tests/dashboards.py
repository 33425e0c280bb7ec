"""The Grafana dashboards: declared here in a few lines each, written as JSON by `make docs`.

tests/test_dashboards.py fails when a file in deploy/grafana is not what this makes, or when a query
names a metric that does not exist.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.documents import ROOT

FOLDER = ROOT / "deploy" / "grafana"
DATA_SOURCE = {"type": "prometheus", "uid": "prometheus"}
WIDTH, HEIGHT = 12, 8
COLUMNS = 24 // WIDTH

REQUESTS = 'door=~"$door"'
NODES = 'instance=~"$instance"'
TOPICS = 'topic=~"$topic"'
GROUPS = f'group=~"$group",{TOPICS}'
FLOWS = 'flow=~"$flow"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    # By legend.
    queries: dict[str, str]
    unit: str = "short"
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    name: str
    title: str
    # Each with the query whose values a reader chooses from.
    variables: dict[str, str]
    panels: tuple[Panel, ...]


def rate(metric: str, by: str, labels: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def percentile(share: float, histogram: str, by: str = "", labels: str = "") -> str:
    grouped = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', grouped, labels)})"


def percentiles(histogram: str, labels: str = "") -> dict[str, str]:
    return {f"p{share:g}": percentile(share / 100, histogram, "", labels) for share in (50, 95, 99)}


OVERVIEW = Dashboard(
    name="overview",
    title="Penstock: overview",
    variables={"door": "label_values(penstock_request_seconds_count, door)"},
    panels=(
        Panel(
            title="Nodes",
            queries={
                "of the cluster": "max(penstock_nodes)",
                "reached": "min(penstock_nodes_alive)",
            },
        ),
        Panel(
            title="Partitions in trouble",
            queries={
                "under-replicated": "sum(penstock_partitions_under_replicated)",
                "without leader": "max(penstock_partitions_without_leader)",
                "stopped": "sum(penstock_partition_replicas_stopped)",
            },
        ),
        Panel(
            title="Records",
            unit="cps",
            queries={
                "in": "sum(rate(penstock_topic_records_in_total[$__rate_interval]))",
                "out": "sum(rate(penstock_topic_records_out_total[$__rate_interval]))",
            },
        ),
        Panel(
            title="Bytes",
            unit="Bps",
            queries={
                "in": "sum(rate(penstock_topic_bytes_in_total[$__rate_interval]))",
                "out": "sum(rate(penstock_topic_bytes_out_total[$__rate_interval]))",
            },
        ),
        Panel(
            title="Requests",
            unit="reqps",
            queries={
                "{{door}} {{api}}": rate("penstock_request_seconds_count", "door, api", REQUESTS)
            },
        ),
        Panel(
            title="Errors",
            unit="reqps",
            queries={
                "{{door}} {{api}} {{code}}": rate(
                    "penstock_request_errors_total", "door, api, code", REQUESTS
                )
            },
        ),
        Panel(
            title="Produce latency",
            unit="s",
            queries=percentiles("penstock_request_seconds", 'door="kafka",api="Produce"'),
        ),
        Panel(
            title="What writes wait for (p99)",
            unit="s",
            queries={
                "queue": percentile(0.99, "penstock_write_queue_seconds"),
                "sync": percentile(0.99, "penstock_sync_seconds"),
                "replication": percentile(0.99, "penstock_replication_seconds"),
            },
        ),
        Panel(
            title="Elections and in-sync sets",
            unit="cps",
            queries={
                "elections": rate("penstock_elections_won_total", "instance"),
                "shrinks": rate("penstock_in_sync_shrinks_total", "instance"),
                "growths": rate("penstock_in_sync_growths_total", "instance"),
            },
        ),
        Panel(
            title="Left out",
            help="Topics, groups, queues and clients without series of their own.",
            queries={"{{family}}": "max by (family) (penstock_series_left_out)"},
        ),
    ),
)

TOPIC = Dashboard(
    name="topic",
    title="Penstock: topic",
    variables={"topic": "label_values(penstock_topic_records_in_total, topic)"},
    panels=(
        Panel(
            title="Records in",
            unit="cps",
            queries={"{{topic}}": rate("penstock_topic_records_in_total", "topic", TOPICS)},
        ),
        Panel(
            title="Records out",
            unit="cps",
            queries={"{{topic}}": rate("penstock_topic_records_out_total", "topic", TOPICS)},
        ),
        Panel(
            title="Bytes in",
            unit="Bps",
            queries={"{{topic}}": rate("penstock_topic_bytes_in_total", "topic", TOPICS)},
        ),
        Panel(
            title="Bytes out",
            unit="Bps",
            queries={"{{topic}}": rate("penstock_topic_bytes_out_total", "topic", TOPICS)},
        ),
        Panel(
            title="Log on all nodes",
            unit="bytes",
            queries={"{{topic}}": f"sum by (topic) (penstock_topic_log_bytes{{{TOPICS}}})"},
        ),
        Panel(
            title="Lag of groups",
            queries={
                "{{group}} {{topic}}": (
                    f"max by (group, topic) (penstock_group_lag_records{{{TOPICS}}})"
                )
            },
        ),
    ),
)

GROUP = Dashboard(
    name="group",
    title="Penstock: group",
    variables={
        "group": "label_values(penstock_group_lag_records, group)",
        "topic": 'label_values(penstock_group_lag_records{group=~"$group"}, topic)',
    },
    panels=(
        Panel(
            title="Lag in records",
            queries={
                "{{group}} {{topic}}": (
                    f"max by (group, topic) (penstock_group_lag_records{{{GROUPS}}})"
                )
            },
        ),
        Panel(
            title="Lag in time",
            unit="s",
            queries={
                "{{group}} {{topic}}": (
                    f"max by (group, topic) (penstock_group_lag_seconds{{{GROUPS}}})"
                )
            },
        ),
        Panel(
            title="Records in and read",
            unit="cps",
            queries={
                "in {{topic}}": rate("penstock_topic_records_in_total", "topic", TOPICS),
                "read {{topic}}": rate("penstock_topic_records_out_total", "topic", TOPICS),
            },
        ),
        Panel(title="Groups by coordinator", queries={"{{instance}}": "penstock_groups"}),
    ),
)

QUEUE = Dashboard(
    name="queue",
    title="Penstock: queue",
    variables={
        "group": "label_values(penstock_queue_depth, group)",
        "topic": 'label_values(penstock_queue_depth{group=~"$group"}, topic)',
    },
    panels=(
        Panel(
            title="Depth",
            queries={
                "{{group}} {{topic}}": f"sum by (group, topic) (penstock_queue_depth{{{GROUPS}}})"
            },
        ),
        Panel(
            title="State of records",
            queries={
                "leased": f"sum(penstock_queue_leased{{{GROUPS}}})",
                "delayed": f"sum(penstock_queue_delayed{{{GROUPS}}})",
                "dying": f"sum(penstock_queue_dying{{{GROUPS}}})",
            },
        ),
        Panel(
            title="Age of the oldest record",
            unit="s",
            queries={
                "{{group}} {{topic}}": (
                    f"max by (group, topic) (penstock_queue_oldest_seconds{{{GROUPS}}})"
                )
            },
        ),
        Panel(
            title="Deliveries",
            unit="cps",
            queries={
                "all": rate("penstock_queue_deliveries_total", "group", GROUPS),
                "again": rate("penstock_queue_redeliveries_total", "group", GROUPS),
            },
        ),
        Panel(
            title="Dead letters",
            queries={
                "{{group}} {{topic}}": (
                    "sum by (group, topic) "
                    f"(increase(penstock_queue_dead_letters_total{{{GROUPS}}}[$__range]))"
                )
            },
        ),
    ),
)

PIPELINE = Dashboard(
    name="pipeline",
    title="Penstock: pipeline",
    variables={"flow": "label_values(penstock_pipeline_rows_in_total, flow)"},
    panels=(
        Panel(
            title="State",
            queries={
                "{{flow}} {{state}}": f"penstock_pipeline_flow_state{{{FLOWS}}} == 1",
            },
        ),
        Panel(
            title="Rows",
            unit="cps",
            queries={
                "in {{flow}}": rate("penstock_pipeline_rows_in_total", "flow", FLOWS),
                "out {{flow}}": rate("penstock_pipeline_rows_out_total", "flow", FLOWS),
            },
        ),
        Panel(
            title="Rows per second of the last batch",
            unit="cps",
            queries={"{{flow}}": f"penstock_pipeline_rows_per_second{{{FLOWS}}}"},
        ),
        Panel(
            title="Lag in records",
            queries={"{{flow}} {{topic}}": f"penstock_pipeline_lag_records{{{FLOWS}}}"},
        ),
        Panel(
            title="Time of the last batch",
            unit="s",
            queries={"{{flow}}": f"penstock_pipeline_batch_seconds{{{FLOWS}}}"},
        ),
        Panel(
            title="Since the last batch",
            unit="s",
            queries={"{{flow}}": f"time() - penstock_pipeline_last_batch_time_seconds{{{FLOWS}}}"},
        ),
        Panel(
            title="Batches",
            unit="cps",
            queries={"{{flow}}": rate("penstock_pipeline_batches_total", "flow", FLOWS)},
        ),
        Panel(
            title="Rows that were not written",
            unit="cps",
            queries={
                "dead letters {{flow}}": rate(
                    "penstock_pipeline_dead_letters_total", "flow", FLOWS
                ),
                "broken rules {{flow}}": rate(
                    "penstock_pipeline_broken_rules_total", "flow", FLOWS
                ),
                "late {{flow}}": rate("penstock_pipeline_late_rows_total", "flow", FLOWS),
            },
        ),
    ),
)

NODE = Dashboard(
    name="node",
    title="Penstock: node",
    variables={"instance": "label_values(penstock_node_info, instance)"},
    panels=(
        Panel(
            title="Partitions",
            queries={
                "replicas {{instance}}": f"penstock_partition_replicas{{{NODES}}}",
                "led {{instance}}": f"penstock_partitions_led{{{NODES}}}",
            },
        ),
        Panel(
            title="Controller and highest term",
            queries={
                "controller {{instance}}": f"penstock_is_controller{{{NODES}}}",
                "term {{instance}}": f"penstock_term_max{{{NODES}}}",
            },
        ),
        Panel(
            title="Event loop: delay (p99)",
            unit="s",
            queries={
                "{{instance}}": percentile(0.99, "penstock_loop_delay_seconds", "instance", NODES)
            },
        ),
        Panel(
            title="Disk: sync (p99) and oldest write under way",
            unit="s",
            queries={
                "sync {{instance}}": percentile(0.99, "penstock_sync_seconds", "instance", NODES),
                "under way {{instance}}": f"penstock_disk_waiting_seconds{{{NODES}}}",
            },
        ),
        Panel(
            title="Disk: free and logs",
            unit="bytes",
            queries={
                "free {{instance}}": f"penstock_disk_free_bytes{{{NODES}}}",
                "logs {{instance}}": f"penstock_log_bytes{{{NODES}}}",
                "unflushed {{instance}}": f"penstock_unflushed_bytes{{{NODES}}}",
            },
        ),
        Panel(
            title="Cold reads",
            unit="cps",
            queries={
                "{{instance}}": rate("penstock_cold_reads_total", "instance", NODES),
                "waiting {{instance}}": f"penstock_cold_reads_waiting{{{NODES}}}",
            },
        ),
        Panel(
            title="CPU",
            unit="percentunit",
            queries={"{{instance}}": rate("process_cpu_seconds_total", "instance", NODES)},
        ),
        Panel(
            title="Memory",
            unit="bytes",
            queries={
                "{{instance}}": (
                    f"process_resident_memory_bytes{{{NODES}}} "
                    f"and on (instance) penstock_node_info{{{NODES}}}"
                )
            },
        ),
        Panel(
            title="Connections",
            queries={"{{instance}} {{door}}": f"penstock_connections{{{NODES}}}"},
        ),
        Panel(
            title="Open files",
            queries={
                "{{instance}}": f"process_open_fds{{{NODES}}}",
                "may be {{instance}}": f"process_max_fds{{{NODES}}}",
            },
        ),
        Panel(
            title="Collections",
            unit="cps",
            queries={
                "{{instance}} {{generation}}": rate(
                    "python_gc_collections_total", "instance, generation", NODES
                )
            },
        ),
        Panel(
            title="Scrape",
            unit="s",
            queries={"{{instance}}": f"penstock_scrape_seconds{{{NODES}}}"},
        ),
    ),
)

DASHBOARDS = (OVERVIEW, TOPIC, GROUP, QUEUE, PIPELINE, NODE)


def content(dashboard: Dashboard) -> str:
    """As Grafana imports or provisions it."""
    variables = [_variable(name, query) for name, query in dashboard.variables.items()]
    panels = [_panel(number, panel) for number, panel in enumerate(dashboard.panels)]
    made = {
        "uid": f"penstock-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["penstock"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables},
        "panels": panels,
    }
    return json.dumps(made, indent=2) + "\n"


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": DATA_SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": DATA_SOURCE,
        "gridPos": {
            "x": number % COLUMNS * WIDTH,
            "y": number // COLUMNS * HEIGHT,
            "w": WIDTH,
            "h": HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": DATA_SOURCE,
                "expr": query,
                "legendFormat": legend,
            }
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def write() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(content(dashboard))


if __name__ == "__main__":
    write()
