"""A collector for tests: takes spans over HTTP as OTLP's protobuf and keeps them.

The messages are decoded with OpenTelemetry's own definitions (opentelemetry-proto), so what it
understands any collector does.
"""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedSpan:
    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    attributes: dict[str, Any]
    # The traces that it is linked to.
    links: tuple[str, ...]
    is_error: bool
    duration_ns: int


class OtlpCollector:
    def __init__(self) -> None:
        self.spans: list[CollectedSpan] = []
        # What it answers; a test may make it refuse everything.
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                if collector.status == 200:
                    collector.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.end_headers()
                self.wfile.write(ExportTraceServiceResponse().SerializeToString())

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """For a process that is to send its spans here, soon."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }

    def take(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            service = _attributes(resource.resource.attributes).get("service.name", "")
            for scope in resource.scope_spans:
                self.spans += [_collected(service, span) for span in scope.spans]

    def named(self, name: str) -> list[CollectedSpan]:
        return [span for span in self.spans if span.name == name]

    def serve(self) -> None:
        self._server.serve_forever()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _collected(service: str, span: Span) -> CollectedSpan:
    return CollectedSpan(
        service=service,
        name=span.name,
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes=_attributes(span.attributes),
        links=tuple(link.trace_id.hex() for link in span.links),
        is_error=span.status.code == Status.STATUS_CODE_ERROR,
        duration_ns=span.end_time_unix_nano - span.start_time_unix_nano,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def otlp_collector() -> Iterator[OtlpCollector]:
    collector = OtlpCollector()
    thread = threading.Thread(target=collector.serve, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.close()
        thread.join()
