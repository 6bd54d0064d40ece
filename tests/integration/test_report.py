"""A real job's history as a page, and the same page live, in a real browser."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from .browser import opened
from .cluster import Cluster, command_line


def reported(job: Cluster, folder: Path) -> tuple[Path, str]:
    page = job.directory / "page.html"
    done = subprocess.run(
        [sys.executable, "-m", "elastic_run", "report", str(folder), "-o", str(page)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return page, done.stderr


def test_the_history_of_a_job_survives_its_masters_move_and_tells_each_interruption(job: Cluster) -> None:
    folder = job.directory / "history"
    job.start("A", "B", "C", nnodes="2:3", history=str(folder))
    workers = job.workers(3)
    workers.do(0, "import sys; print('the last words', file=sys.stderr)")
    workers[0].tell("raise ValueError('a planted fault')")
    job.workers(3)
    lost = job.master()
    job.kill_machine(lost)
    job.workers(2).release()
    job.finish()
    page, said = reported(job, folder)
    assert re.search(r"3 rounds, 2 interruptions", said), said
    assert len(list(folder.iterdir())) == 3, "the lost master's node has left what it had written"
    text = page.read_text(encoding="utf-8")
    for words in ("a planted fault", "WorkerFailed", "NodesLost", "the last words", "downtime", "succeeded"):
        assert words in text, words
    with opened() as browser:
        for width, dark in ((1100, False), (380, True)):
            browser.look(width, 800, dark=dark)
            browser.go(page.as_uri())
            assert browser.value("document.documentElement.scrollWidth <= innerWidth"), f"{width} pixels are enough"
            browser.picture(job.directory / f"page-{width}.png")
        assert not browser.failures, browser.failures
        assert "a planted fault" in browser.text
        # With the keyboard alone: the first mark of the picture opens what it stands for.
        browser.value("document.querySelector('.narrow svg a').focus()")
        browser.press("Enter", 13, "\r")
        browser.until(lambda: browser.value("document.querySelector('#i1').closest('details').open"))
        assert "exited with code 1: ValueError: a planted fault" in browser.text
    if kept := os.environ.get("ELASTIC_RUN_KEEP_PICTURES"):
        for picture in job.directory.glob("page*"):
            (Path(kept) / picture.name).write_bytes(picture.read_bytes())


def url_of(job: Cluster, node: str) -> str:
    return job.wait_for_line(node, r"dashboard: (http://127\.0\.0\.1:\d+/\?token=\S+)")[1]


def test_the_dashboard_follows_a_job_through_a_fault_and_the_masters_move(job: Cluster) -> None:
    job.start("A", "B", nnodes="1:2", dashboard="")
    job.workers(2)
    master = job.master()
    other = "B" if master == "A" else "A"
    url = url_of(job, other)
    with opened() as browser:
        browser.go(url)
        assert "token" not in browser.value("location.href"), "it is left in no address line and no history"
        assert browser.value("document.cookie") == "", "no script can read it"
        browser.until(lambda: "2 workers on 2 nodes" in browser.text or "workers now" in browser.text)
        job.kill_machine(master)
        second = job.workers(1)
        browser.until(lambda: f"node {master} was lost" in browser.text)
        browser.value("document.querySelector('details[data-key=i1] summary').focus()")
        browser.press("Enter", 13, "\r")
        browser.until(lambda: browser.value("document.querySelector('details[data-key=i1]').open"))
        before = browser.value("document.querySelector('header p').innerText")
        browser.until(lambda: browser.value("document.querySelector('header p').innerText") != before)
        assert browser.value("document.querySelector('details[data-key=i1]').open"), "what is open stays open"
        assert browser.value("document.activeElement.closest('details').dataset.key") == "i1", "and keeps the focus"
        assert not browser.failures, browser.failures
        second.release()
        job.finish()
        browser.until(lambda: "No answer for" in browser.text)
        assert f"node {master} was lost" in browser.text, "what was known last stays there"


def test_nobody_without_the_token_sees_anything_and_the_token_is_in_no_command_line(job: Cluster) -> None:
    job.start("A", nnodes="1:2", dashboard="")
    workers = job.workers(1)
    url = url_of(job, "A")
    root, token = url.split("?token=")
    for path in (root, f"{root}part", f"{root}?token=wrong"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(path, timeout=60)
        assert refused.value.code == 403 and job.job not in refused.value.read().decode()
        refused.value.close()
    asked = urllib.request.Request(f"{root}part", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=60) as answer:
        assert job.job in answer.read().decode() and "default-src 'none'" in answer.headers["Content-Security-Policy"]
    commands = [command_line(int(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit()]
    assert any("elastic_run" in words for words in commands)
    assert not any(token in words for words in commands)
    assert job.log("A").count(token) == 1 and token not in json.dumps(dict(workers[0].env))
    workers.release()
    assert job.finish() == {"A": 0}


def test_an_address_that_is_taken_costs_the_page_and_not_the_job(job: Cluster) -> None:
    job.start("A", nnodes="1:2", dashboard="")
    first = job.workers(1)
    port = re.search(r":(\d+)/", url_of(job, "A"))
    assert port is not None
    taken = subprocess.run(
        [
            sys.executable,
            "-m",
            "elastic_run",
            "--standalone",
            f"--dashboard=127.0.0.1:{port[1]}",
            "--no-python",
            "true",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert taken.returncode == 0 and "the job runs without it" in taken.stderr, taken.stderr
    first.release()
    assert job.finish() == {"A": 0}


def kept(job: Cluster, name: str) -> None:
    """The pictures of a test, where somebody wants them."""
    if folder := os.environ.get("ELASTIC_RUN_KEEP_PICTURES"):
        for picture in job.directory.glob(f"{name}*.png"):
            (Path(folder) / picture.name).write_bytes(picture.read_bytes())


def test_the_screen_alone_says_which_rank_a_job_waits_for_and_shows_where_it_is(job: Cluster) -> None:
    job.start("A", "B", nnodes="2", nproc_per_node="2", hang_timeout="2", dashboard="", max_restarts="0")
    workers = job.workers(4)
    stopped = workers[3]
    # Ranks 0 to 2 wait for what rank 3 would send, and a signal stops rank 3.
    workers.do(3, "import socket; server = socket.create_server(('127.0.0.1', 0))")
    workers.do(3, "strings.say(f'port {server.getsockname()[1]}')")
    port = next(text for text in stopped.said if text.startswith("port ")).removeprefix("port ")
    for rank in range(3):
        workers[rank].tell(f"import socket; c = socket.create_connection(('127.0.0.1', {port})); c.recv(1)")
    workers.do(3, "c = [server.accept()[0] for _ in range(3)]; print('reading sample 17', flush=True)")
    os.kill(stopped.pid, signal.SIGSTOP)
    master = job.master()
    url = url_of(job, "B" if master == "A" else "A")  # the page of a node that does not lead
    with opened() as browser:
        browser.look(380, 800)
        browser.go(url)
        browser.until(lambda: f"rank 3 on node {stopped.node} is stopped by a signal" in browser.text)
        text = browser.text
        assert text.index("Why the job is slow or makes no progress") < text.index("goodput"), (
            "what matters comes first"
        )
        assert "reading sample 17" in text and "ranks 0-2" in text
        assert browser.value("document.documentElement.scrollWidth <= innerWidth"), "a phone is wide enough"
        browser.picture(job.directory / "slow-380.png")
        browser.look(1100, 800)
        browser.picture(job.directory / "slow-1100.png")
        # With the keyboard alone, and the focus stays while the page is made anew.
        browser.value("document.querySelector('#suspects').parentElement.querySelector('a[href]').focus()")
        before = browser.value("document.querySelector('header p').innerText")
        browser.until(lambda: browser.value("document.querySelector('header p').innerText") != before)
        assert browser.value("document.activeElement.getAttribute('href')") == "rank?number=3"
        browser.press("Enter", 13, "\r")
        browser.until(lambda: "Where it is" in browser.text)
        text = browser.text
        assert f"process {stopped.pid}" in text and "is stopped by a signal" in text and "reading sample 17" in text
        browser.picture(job.directory / "rank-1100.png")
        browser.value("document.querySelector('a[href=\"/\"]').focus()")
        browser.press("Enter", 13, "\r")
        browser.until(lambda: "World size over time" in browser.text)
        os.kill(stopped.pid, signal.SIGKILL)
        job.finish()
        # Who looks sees the end, though nobody serves the page any more.
        browser.until(lambda: "Root cause" in browser.text)
        text = browser.text
        assert text.index("Root cause") < text.index("goodput")
        assert "rank 3" in text and "SIGKILL" in text
        browser.until(lambda: browser.value("document.querySelector('details[data-key=i1] summary') !== null"))
        browser.value("document.querySelector('details[data-key=i1] summary').click()")
        assert "is stopped by a signal" in browser.value("document.querySelector('#i1').innerText")
        browser.picture(job.directory / "slow-end.png")
        assert not browser.failures, browser.failures
    kept(job, "slow")
    kept(job, "rank")
