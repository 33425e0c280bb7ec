"""Spark with two cores in a process of its own, for the workloads of archive and replay.

    python -m benchmarks.archive_process JARS JVM_OPTIONS

The protocol is that of benchmarks/spark_process.py.
"""

import sys

from benchmarks.archive_commands import COMMANDS
from benchmarks.pipeline_process import start_session
from benchmarks.spark_process import serve, take_stdout


def main(_: str, jvm_options: str) -> None:
    answers = take_stdout()
    serve(answers, start_session(jvm_options), COMMANDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
