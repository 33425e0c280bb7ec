"""Proves that `penstock pipeline validate` tells its problems and lets none of Spark's talk out."""

import socket
import subprocess
import sys
from pathlib import Path

SPECIFICATION = """\
pipeline: iot
parameters: {{brokers: "127.0.0.1:{port}"}}
sources:
  readings:
    topic: readings
    brokers: ${{brokers}}
    decode: {{format: json, schema: "sensor STRING, temperature DOUBLE"}}
steps:
  warm:
    sql: |
      SELECT sensor
      FROM readings WHERE temprature > 30
flows:
  copy: {{from: warm, to: {{console: 5}}}}
"""
COMMAND_TIMEOUT_S = 240


def test_problems_are_all_that_a_user_sees(java_home: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock.cli.main", "pipeline", "validate", "iot.yaml"]
    # Held and not listened on, so that nobody else can answer there.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        (tmp_path / "iot.yaml").write_text(SPECIFICATION.format(port=port))
        done = subprocess.run(
            [*command, "--online"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
        )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    online, offline = done.stderr.splitlines()
    assert online.startswith("iot.yaml:6:5: ")
    assert f"127.0.0.1:{port}" in online
    assert offline.startswith("iot.yaml:12:27: There is no column temprature; the nearest are")
    assert [path.name for path in tmp_path.iterdir()] == ["iot.yaml"], "nothing is left behind"
