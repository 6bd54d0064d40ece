"""Recoveries as traces of OpenTelemetry, at a real receiver over HTTP, and at none."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from .cluster import Cluster

SCRIPT = """
import os, sys, time
if os.environ["RANK"] == "1" and not os.path.exists("killed"):
    open("killed", "w").close()
    os.kill(os.getpid(), 9)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    time.sleep(600)  # the end of the other one ends it
"""
SECONDS = 120.0


class Received:
    """What a collector has got: the spans, with the attributes of who sent them."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[ExportTraceServiceRequest] = []
        self.paths: set[str] = set()

    @property
    def spans(self) -> list[tuple[str, str, str, bytes, bytes]]:
        """Node, name, reason, trace id and parent of each."""
        found: list[tuple[str, str, str, bytes, bytes]] = []
        for request in self.requests:
            for of_node in request.resource_spans:
                about = {each.key: each.value.string_value for each in of_node.resource.attributes}
                assert about["service.name"] == "elastic-run"
                for scope in of_node.scope_spans:
                    for span in scope.spans:
                        reason = {each.key: each.value.string_value for each in span.attributes}.get("reason", "")
                        found.append((about["elastic_run.node"], span.name, reason, span.trace_id, span.parent_span_id))
        return found


@contextmanager
def collector() -> Generator[Received]:
    """A receiver of OTLP over HTTP."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            received.paths.add(self.path)
            received.requests.append(ExportTraceServiceRequest.FromString(data))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received = Received(server.server_port)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(folder: Path, otlp: str, **more: str) -> "subprocess.CompletedProcess[str]":
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "elastic_run", "--standalone", "--nproc-per-node=2", otlp, "train.py"]
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_COMPRESSION": "none", **more}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS)


def test_a_collector_gets_each_recovery_with_its_spans_and_its_cause(tmp_path: Path) -> None:
    with collector() as received:
        done = run(tmp_path, f"--otlp={received.url}")
        assert done.returncode == 0 and "--otlp" not in done.stderr, done.stderr
        assert received.paths == {"/v1/traces"}
        names = [name for _, name, _, _, _ in received.spans]
        assert {"round 1", "round 2", "end", "decide", "stop", "start"} <= set(names)
        (second,) = [each for each in received.spans if each[1] == "round 2"]
        assert "rank 1" in second[2] and "SIGKILL" in second[2] and second[4] == b""
        inside = {name for _, name, _, trace, parent in received.spans if trace == second[3] and parent}
        assert {"decide", "stop", "start"} <= inside


def test_all_nodes_of_a_job_send_one_trace_of_each_round(job: Cluster) -> None:
    with collector() as received:
        job.start("A", "B", nnodes="1:2", otlp=received.url, env={"OTEL_EXPORTER_OTLP_COMPRESSION": "none"})
        job.workers(2)[1].tell("raise ValueError('a planted fault')")
        job.workers(2).release()
        assert job.finish() == {"A": 0, "B": 0}
        recovery = [each for each in received.spans if each[1] == "round 2"]
        assert sorted(node for node, *_ in recovery) == ["A", "B"]
        assert len({trace for _, _, _, trace, _ in recovery}) == 1, "the nodes have not talked about it"
        assert all("a planted fault" in reason for _, _, reason, _, _ in recovery)


def test_a_collector_that_is_gone_is_said_once_and_costs_nothing_else(tmp_path: Path) -> None:
    done = run(tmp_path, "--otlp=http://127.0.0.1:1")
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert done.stderr.count("--otlp: traces are lost") == 1 and "succeeded" in done.stderr, done.stderr


def test_a_collector_that_takes_a_connection_and_never_answers_does_not_keep_the_job_from_its_end(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (tmp_path / "train.py").write_text("import time; time.sleep(2)")
        command = [sys.executable, "-m", "elastic_run", "--standalone"]
        url = f"--otlp=http://127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen([*command, url, "train.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as job:
            assert job.stderr is not None
            silent.settimeout(SECONDS)
            connection, _ = silent.accept()  # the start of the job is sent, and nobody answers
            with connection:
                assert job.wait(SECONDS) == 0
                said = job.stderr.read()
                assert "succeeded" in said and said.count("--otlp: traces are lost") == 1, said


def test_what_is_no_url_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = run(tmp_path, "--otlp=collector:4318")
    assert done.returncode == 2 and "is not the URL of a collector" in done.stderr


def test_a_variable_of_opentelemetry_that_it_cannot_read_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    done = run(tmp_path, "--otlp", OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT="x", TMPDIR=str(tmp_path / "made"))
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "--otlp" in done.stderr and "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT" in done.stderr
    assert not list((tmp_path / "made").iterdir())
