"""A running pipeline's metrics, on a port of its own: a watcher that counts, and a small server."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

from penstock.model.endpoint import Endpoint
from penstock.observe.exposition import content_type, exposition
from penstock.observe.families import Sample
from penstock.pipelines.running.flow_states import FlowState
from penstock.pipelines.running.progress import BatchProgress, Totals
from penstock.pipelines.running.refusals import RunRefused
from penstock.pipelines.running.watching import RunView, Watcher

PATH: Final = "/metrics"
# A client that sends nothing, or does not read, is cut off after this time.
CLIENT_S_MAX: Final = 10.0


class MetricsWatcher:
    """Counts what a run does, and passes everything on to another watcher."""

    def __init__(self, pipeline: str, watcher: Watcher) -> None:
        self._watcher = watcher
        self._pipeline = pipeline
        self._totals: dict[str, Totals] = {}
        self._batches: dict[str, int] = {}
        self._last: dict[str, BatchProgress] = {}
        self._states: dict[str, FlowState] = {}

    def phase(self, sentence: str) -> None:
        self._watcher.phase(sentence)

    def show(self, view: RunView) -> None:
        self._states = {flow.name: flow.state for flow in view.flows}
        self._watcher.show(view)

    def finished(self, flow: str, batch: BatchProgress) -> None:
        self._totals[flow] = self._totals.get(flow, Totals()).plus(batch)
        self._batches[flow] = self._batches.get(flow, 0) + 1
        self._last[flow] = batch
        self._watcher.finished(flow, batch)

    def samples(self) -> dict[str, list[Sample]]:
        """From any thread: each entry that it reads is replaced as a whole, never changed."""
        found: dict[str, list[Sample]] = {
            "penstock_pipeline_info": [((self._pipeline,), 1)],
            "penstock_pipeline_flow_state": [
                ((flow, str(state)), int(state is current))
                for flow, current in list(self._states.items())
                for state in FlowState
            ],
        }

        def add(name: str, value: float, *labels: str) -> None:
            found.setdefault(f"penstock_pipeline_{name}", []).append((labels, value))

        # A flow that has not ended a batch has counted nothing.
        for flow in list(self._states):
            total = self._totals.get(flow, Totals())
            add("rows_in_total", total.rows_in, flow)
            add("rows_out_total", total.rows_out, flow)
            add("batches_total", self._batches.get(flow, 0), flow)
            add("dead_letters_total", total.dead_letters, flow)
            add("broken_rules_total", total.broken_rules, flow)
            add("late_rows_total", total.late_rows, flow)
        for flow, last in list(self._last.items()):
            add("rows_per_second", last.rate, flow)
            add("batch_seconds", last.batch_ms / 1000, flow)
            add("last_batch_time_seconds", last.ended_ms / 1000, flow)
            for topic, partitions in last.lag.items():
                add("lag_records", sum(partitions.values()), flow, topic)
        return found


@contextmanager
def metrics_server(watcher: MetricsWatcher, endpoint: Endpoint) -> Iterator[Endpoint]:
    """Answers at `/metrics` until the end; gives where, since port 0 picks a free one."""

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_S_MAX

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self.send_error(404)
                return
            kind = content_type(self.headers.get("accept", ""))
            body = exposition(watcher.samples(), kind)
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """A scrape every few seconds is no news."""

    try:
        server = ThreadingHTTPServer((endpoint.host, endpoint.port), Handler)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise RunRefused(f"The metrics can't be served at {endpoint}: {why}.") from None
    server.daemon_threads = True
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Endpoint(endpoint.host, server.server_address[1])
        finally:
            server.shutdown()
