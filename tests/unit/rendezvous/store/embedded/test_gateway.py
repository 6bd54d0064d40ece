"""What etcd's JSON gateway is sent, and what its answers mean."""

import base64

import pytest

from elastic_run.rendezvous.store.embedded import gateway
from elastic_run.rendezvous.store.embedded.gateway import NotEtcd, encoded, is_whole, keys_under, node_keys, read_answer

HEAD = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 7\r\nContent-Type: application/json\r\n\r\n"


def test_an_answer_that_says_its_length_is_whole_with_its_last_byte() -> None:
    answer = HEAD + b'{"a":1}'
    assert [is_whole(answer[:end]) for end in range(len(answer) + 1)] == [*[False] * len(answer), True]
    assert read_answer(answer) == (200, {"a": 1})


def test_a_length_below_the_head_is_none_and_such_an_answer_ends_with_its_connection() -> None:
    answer = b'HTTP/1.0 503 Unavailable\r\n\r\n{"error":"\r\nContent-Length: 1\r\n"}'
    assert not is_whole(answer)
    with pytest.raises(NotEtcd, match="answers HTTP 503 and no JSON"):  # a line's end within a text
        read_answer(answer)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"", "it closes the connection"),
        (b"SSH-2.0-OpenSSH\r\n", "it answers b'SSH-2.0-OpenSSH"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n<p>", "it answers HTTP 404 and no JSON"),
        (HEAD + b"[1,2,3]", "it answers HTTP 200 and no JSON"),
    ],
)
def test_what_is_no_answer_of_etcd_is_told_by_what_it_is(reply: bytes, words: str) -> None:
    with pytest.raises(NotEtcd) as found:
        read_answer(reply)
    assert str(found.value).startswith(words)


def test_an_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "LARGEST_REPLY", 1 << 20)
    assert not is_whole(bytes(1 << 20))
    with pytest.raises(NotEtcd, match="more than 1 MiB"):
        is_whole(bytes((1 << 20) + 1))


def answer(*entries: tuple[str, int]) -> dict[str, object]:
    kvs = [
        {"key": base64.b64encode(key.encode()).decode()} | ({"lease": str(lease)} if lease else {})
        for key, lease in entries
    ]
    return {"kvs": kvs}


def test_only_leased_node_keys_count() -> None:
    found = node_keys(
        answer(
            ("/elastic-run/job/leader", 1),
            ("/elastic-run/job/assignments/7.1/n0", 0),
            ("/elastic-run/job/nodes/n0", 0),
            ("/elastic-run/job/nodes/n1", 7),
            ("/elastic-run/team/job/nodes/n2", 7),
        )
    )
    assert found == [b"/elastic-run/job/nodes/n1", b"/elastic-run/team/job/nodes/n2"]


def test_an_empty_answer_holds_no_nodes() -> None:
    assert node_keys({"header": {}}) == []


def test_the_end_of_a_prefix_is_the_next_text_after_all_of_it() -> None:
    assert keys_under(b"/elastic-run/") == {"key": encoded(b"/elastic-run/"), "range_end": encoded(b"/elastic-run0")}
