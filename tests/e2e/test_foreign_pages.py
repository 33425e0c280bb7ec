"""Proves with a real browser that a page of another origin reads nothing from a node and changes
nothing: by fetch with and without CORS, by forms, frames, scripts, beacons and server-sent events,
and by a name that first belongs to the page and then to the node (DNS rebinding)."""

import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.e2e.commands import fresh
from tests.e2e.conftest import MakeBroker
from tests.e2e.processes import Broker

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium, which .ci/run installs"),
    pytest.mark.timeout(180),
]

PAGE = Path(__file__).with_name("foreign_page.html")
WAIT_S = 90.0
SECRET = "nobody's business"
EVIL = "evil.example"
WRITES = ("POST", "PUT", "DELETE")


class PageServer:
    """Serves the page and takes its report. Whatever else it is asked for it allows, with CORS, and
    counts it: so it shows that the page's attempts work where nobody refuses them."""

    def __init__(self) -> None:
        self.reports: queue.Queue[dict[str, str | None]] = queue.Queue()
        self.written: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                size = int(self.headers.get("content-length", 0))
                content = self.rfile.read(size)
                kind, answer = server._answer(self.command, self.path, content)
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(answer)))
                self.send_header("x-page", "yes")
                for name in ("origin", "methods", "headers"):
                    self.send_header(f"access-control-allow-{name}", "*")
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = _answer  # noqa: N815

            def log_message(self, *_: Any) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._http.server_port
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def _answer(self, method: str, path: str, content: bytes) -> tuple[str, bytes]:
        if path.startswith("/page"):
            return "text/html", PAGE.read_bytes()
        if path == "/report":
            self.reports.put(json.loads(content))
            return "text/plain", b""
        if method in WRITES or path.startswith("/v1/queues/"):
            self.written.append(path)
        if "/events" in path:
            return "text/event-stream", f"data: {SECRET}\n\n".encode()
        kind = "text/javascript" if path == "/v1/topics" else "application/json"
        return kind, json.dumps(SECRET).encode()

    def report(self) -> dict[str, str | None]:
        return self.reports.get(timeout=WAIT_S)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextmanager
def visiting(url: str, folder: Path) -> Iterator[None]:
    """A browser at that page, in which a foreign name leads to this machine."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        # Of today's browsers only some ask before a page reaches a private address.
        "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
        f"--host-resolver-rules=MAP {EVIL} 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, "
        "EXCLUDE localhost",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        url,
    ]
    with (folder.parent / "chromium.log").open("wb") as log:
        browser = subprocess.Popen(command, stdout=log, stderr=log, process_group=0)
    try:
        yield
    finally:
        browser.terminate()
        try:
            browser.wait(10)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()


@pytest.fixture
def pages() -> Iterator[PageServer]:
    made = PageServer()
    yield made
    made.close()


def write_secret(http: str, topic: str) -> None:
    body = {"records": [{"value": SECRET}]}
    answer = httpx.post(f"http://{http}/v1/topics/{topic}/records", json=body, timeout=WAIT_S)
    assert answer.status_code == 200, answer.text


def check_untouched(http: str, topic: str) -> None:
    with httpx.Client(base_url=f"http://{http}", timeout=WAIT_S) as client:
        records = client.get(f"/v1/topics/{topic}/records").json()["records"]
        assert [record["value"] for record in records] == [SECRET]
        assert client.get("/v1/locks/page").status_code == 404
        # A queue is there as soon as somebody has polled it.
        assert client.get(f"/v1/queues/{topic}/page").status_code == 404


def page_url(host: str, pages: PageServer, **asked: str) -> str:
    report = f"http://127.0.0.1:{pages.port}/report"
    return f"http://{host}:{pages.port}/page?{urlencode({'report': report, **asked})}"


def test_the_page_reads_and_writes_where_nobody_refuses_it(
    pages: PageServer, tmp_path: Path
) -> None:
    """Otherwise the other tests would prove nothing."""
    open_door = f"http://127.0.0.1:{pages.port}"
    with visiting(page_url(EVIL, pages, door=open_door, topic="t"), tmp_path / "profile"):
        found = pages.report()
    unreadable = ("get_no_cors", "post_no_cors", "post_form_type", "beacon", "form", "frame")
    for name, text in found.items():
        assert bool(text) is (name not in unreadable), (name, text)
    assert pages.written.count("/v1/topics/t/records") == 6
    others = {"/v1/topics/t", "/v1/groups/g/offsets", "/v1/locks/page/acquire"}
    assert {*others, "/v1/queues/t/page/events"} <= set(pages.written)


@pytest.mark.parametrize("host", [EVIL, "localhost"])
def test_a_page_of_another_origin_reads_and_changes_nothing(
    host: str, broker: Broker, pages: PageServer, tmp_path: Path
) -> None:
    topic = fresh("topic")
    write_secret(str(broker.http), topic)
    # From localhost to localhost it is the same site, and only the port differs.
    place = "localhost" if host == "localhost" else "127.0.0.1"
    door = f"http://{place}:{str(broker.http).rpartition(':')[2]}"
    with visiting(page_url(host, pages, door=door, topic=topic), tmp_path / "profile"):
        found = pages.report()
    assert not any(found.values()), found
    check_untouched(str(broker.http), topic)


def test_a_name_that_is_bound_to_the_node_later_reads_and_changes_nothing(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    """The page and the node have the same origin then: a name, and the port of both."""
    pages, reports = PageServer(), PageServer()
    try:
        url = page_url(EVIL, pages, door="", topic="t", rebinds="yes").replace(
            f"{pages.port}%2Freport", f"{reports.port}%2Freport"
        )
        with visiting(url, tmp_path / "profile"):
            pages_seen = threading.Event()
            answer = pages._answer

            def seen(method: str, path: str, content: bytes) -> tuple[str, bytes]:
                if path == "/here":
                    pages_seen.set()
                return answer(method, path, content)

            pages._answer = seen  # type: ignore[method-assign]
            assert pages_seen.wait(WAIT_S), "the page was not loaded"
            pages.close()
            broker = make_broker("--http", f"127.0.0.1:{pages.port}").start()
            write_secret(str(broker.http), "t")
            found = reports.report()
        refused = {name: json.loads(text)["reason"] for name, text in found.items() if text}
        assert set(refused.values()) == {"unknown_host"}, found
        assert SECRET not in json.dumps(found)
        check_untouched(str(broker.http), "t")
    finally:
        reports.close()
