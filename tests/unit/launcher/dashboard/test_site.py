"""What a request to the dashboard is answered with."""

import re
from http import HTTPStatus

import pytest

from elastic_run.launcher.dashboard.site import HEADERS, LONGEST, SCRIPT, Request, Response, Site
from elastic_run.launcher.report.page import digest

SITE = Site("secret-token", "elastic_run_8080")
COOKIE = "elastic_run_8080=secret-token"


def answer(
    path: str, cookie: str = "", method: str = "GET", authorization: str = "", *, healthy: bool = True
) -> Response:
    request = Request(method, path, cookie, authorization)
    return SITE.answer(request, "job", lambda: "<p>now</p>", "<p>rank {}</p>".format, lambda: healthy)


def test_the_printed_url_moves_its_token_into_a_cookie() -> None:
    found = answer("/?token=secret-token")
    assert (found.status, found.headers["Location"], found.body) == (HTTPStatus.SEE_OTHER, "/", "")
    assert found.headers["Set-Cookie"] == f"{COOKIE}; Path=/; HttpOnly; SameSite=Strict"


def test_who_has_the_token_sees_the_page_and_its_parts() -> None:
    whole = answer("/", COOKIE)
    assert whole.status == HTTPStatus.OK and "<p>now</p>" in whole.body and "secret-token" not in whole.body
    assert answer("/part?page=a", f"other=1; {COOKIE}") == Response(HTTPStatus.OK, "<p>now</p>")
    assert answer("/part", authorization="Bearer secret-token").body == "<p>now</p>"
    assert answer("/elsewhere", COOKIE).status == HTTPStatus.NOT_FOUND


def test_a_rank_has_a_page_of_its_own_where_its_number_is_one() -> None:
    assert "<p>rank 12</p>" in answer("/rank?number=12", COOKIE).body
    for wrong in ("", "?number=", "?number=-1", "?number=x", "?number=12345678", "?number=%D9%A3"):
        assert answer(f"/rank{wrong}", COOKIE).status == HTTPStatus.NOT_FOUND


def test_a_probe_needs_no_token_and_learns_only_whether_the_agent_does_its_work() -> None:
    found = answer("/health")
    assert (found.status, found.body) == (HTTPStatus.OK, "ok\n")
    assert answer("/health", healthy=False).status == HTTPStatus.SERVICE_UNAVAILABLE


@pytest.mark.parametrize(
    ("path", "cookie"),
    [
        ("/", ""),
        ("/part", ""),
        ("/rank?number=1", ""),
        ("/part?token=secret-token", ""),
        ("/?token=wrong", COOKIE),
        ("/?token=", ""),
        ("/", "elastic_run_8081=secret-token"),
        ("/", "elastic_run_8080="),
        ("/", "elastic_run_8080=secret-tokem"),
        ("/", "elastic_run_8080=sécret"),
        ("/", '"\x00;==;'),
    ],
)
def test_everybody_else_sees_nothing(path: str, cookie: str) -> None:
    found = answer(path, cookie)
    assert found.status == HTTPStatus.FORBIDDEN and "<p>now</p>" not in found.body and not found.headers


def test_nothing_can_be_changed_and_nothing_long_is_read() -> None:
    assert answer("/", COOKIE, "POST").status == HTTPStatus.METHOD_NOT_ALLOWED
    assert answer("/" + "x" * LONGEST, COOKIE).status == HTTPStatus.REQUEST_URI_TOO_LONG


def test_the_policy_allows_this_script_alone_and_no_other_site() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert f"script-src '{digest(SCRIPT)}'" in policy and "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy and "unsafe" not in policy and not re.search(r"https?:|\*", policy)
    assert f"<script>{SCRIPT}</script>" in answer("/", COOKIE).body
