"""Endpoints as users type them, and which hosts are this machine."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.rendezvous.store import endpoint as module
from elastic_run.rendezvous.store.endpoint import (
    Binding,
    Endpoint,
    MalformedEndpoint,
    binding,
    is_local,
    parse_endpoints,
    routable_address,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h1:2379,h2:2380", (Endpoint("h1", 2379), Endpoint("h2", 2380))),
        ("h1,h2,h3", (Endpoint("h1"), Endpoint("h2"), Endpoint("h3"))),
        (" h1 , h2:1 ", (Endpoint("h1"), Endpoint("h2", 1))),
        ("Node-1.Cluster.Example:65535", (Endpoint("node-1.cluster.example", 65535),)),
        ("gpu_node:29400", (Endpoint("gpu_node", 29400),)),
        ("10.0.0.1:29400", (Endpoint("10.0.0.1", 29400),)),
        ("[::1]:2379", (Endpoint("::1", 2379),)),
        ("[2001:DB8::1]", (Endpoint("2001:db8::1"),)),
        ("::1", (Endpoint("::1"),)),
        ("0:0:0:0:0:0:0:1", (Endpoint("::1"),)),
        ("::1,h2", (Endpoint("::1"), Endpoint("h2"))),
        ("http://h1:2379", (Endpoint("h1", 2379, plain=True),)),
        ("https://h1:2379/", (Endpoint("h1", 2379, tls=True),)),
        ("HTTP://[::1]:80", (Endpoint("::1", 80, plain=True),)),
        ("h1,h2", (Endpoint("h1"), Endpoint("h2"))),
    ],
)
def test_what_users_type_is_read(text: str, expected: tuple[Endpoint, ...]) -> None:
    assert parse_endpoints(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("h1,,h2", "empty item"),
        ("h1,", "empty item"),
        (":2379", "no host"),
        ("h1:", "'' is not a number"),
        ("h1:http", "'http' is not a number"),
        ("h1:-1", "'-1' is not a number"),
        ("h1:²", "is not a number"),
        ("h1:0", "not between 1 and 65535"),
        ("h1:65536", "not between 1 and 65535"),
        ("h1:1,h1:1", "twice"),
        ("h1,H1:2379", "twice"),
        ("http://h1,https://h1", "twice"),
        ("[::1", r"\[address\]:port"),
        ("[::1]2379", r"\[address\]:port"),
        ("[h1]:2379", "not an IPv6 address"),
        ("h1:2379:2380", "not an IPv6 address"),
        ("1.2.3:1", "not an IPv4 address"),
        ("1.2.3.256", "not an IPv4 address"),
        ("h 1:2379", "not a host name"),
        ("-h1", "not a host name"),
        ("h1..h2", "not a host name"),
        ("ftp://h1", "neither http nor https"),
        ("http://h1/path", "without a path"),
        ("user@h1", "without a user"),
        ("0.0.0.0:2379", "cannot connect to 0.0.0.0"),
        ("[::]:2379", "cannot connect to ::"),
    ],
)
def test_what_cannot_be_an_endpoint_is_refused_in_words(text: str, problem: str) -> None:
    with pytest.raises(MalformedEndpoint, match=problem):
        parse_endpoints(text)


def test_the_default_port_is_the_callers() -> None:
    assert parse_endpoints("h1,[::1],::2", 29400) == tuple(Endpoint(host, 29400) for host in ("h1", "::1", "::2"))


@given(
    st.one_of(st.ip_addresses().map(str), st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)),
    st.integers(1, 65535),
    st.booleans(),
)
def test_an_endpoint_survives_being_written_and_read(host: str, port: int, tls: bool) -> None:
    endpoint = Endpoint(host, port, tls)
    try:
        (again,) = parse_endpoints(endpoint.typed)
    except MalformedEndpoint as error:
        assert "cannot connect" in str(error)  # multicast and unspecified addresses
    else:
        assert again == endpoint


def test_an_ipv6_address_gets_brackets_in_a_url() -> None:
    assert str(Endpoint("::1", 1)) == "[::1]:1"
    assert Endpoint("h", 1, tls=True).url == Endpoint("h", 1, secret="0f").url == "https://h:1"


def test_another_command_is_given_an_endpoint_as_it_was_typed() -> None:
    assert [each.typed for each in parse_endpoints("a,http://b,https://c")] == [
        "a:2379",
        "http://b:2379",
        "https://c:2379",
    ]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_local(host)


def test_every_interface_address_is_this_machine() -> None:
    assert all(is_local(address) for address in module.interface_addresses())


def test_another_machine_is_not_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "interface_addresses", lambda: frozenset({"127.0.0.1", "192.0.2.2"}))
    assert not is_local("192.0.2.3")


def test_a_name_that_does_not_resolve_is_not_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_arguments: object, **_options: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    monkeypatch.setattr(socket, "getaddrinfo", nothing)
    assert not is_local("nowhere")


@pytest.fixture
def two_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Debian machine `me` (127.0.1.1) with two interfaces; `peer` is reached through the second."""
    names = {"me": ("127.0.1.1",), "peer": ("198.51.100.9",), "named": ("127.0.1.1", "192.0.2.2")}
    monkeypatch.setattr(module, "resolve", lambda host: names.get(host, (host,)))  # pyright: ignore
    monkeypatch.setattr(module, "interface_addresses", lambda: frozenset({"127.0.0.1", "192.0.2.2", "198.51.100.2"}))
    routes = {"198.51.100.9": "198.51.100.2"}
    monkeypatch.setattr(module, "find_source_address", lambda target, _port: routes.get(target))  # pyright: ignore


def test_the_interface_that_routes_to_the_peers_is_found(two_interfaces: None) -> None:
    assert routable_address([Endpoint("me"), Endpoint("peer")]) == "198.51.100.2"


def test_without_a_reachable_peer_some_interface_is_named(two_interfaces: None) -> None:
    assert routable_address([]) == "192.0.2.2"


def test_without_a_peer_the_default_route_is_preferred_to_the_bridge_of_containers(
    two_interfaces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 192.0.2.2, the smaller one, is the bridge's.
    monkeypatch.setattr(module, "find_source_address", lambda target, _port: None if ":" in target else "198.51.100.2")
    assert routable_address([]) == "198.51.100.2"


def test_without_a_peer_a_machine_that_has_no_other_route_than_ipv6_names_its_address(
    two_interfaces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_source_address", lambda target, _port: "2001:db8::2" if ":" in target else None)
    assert routable_address([]) == "2001:db8::2"


@pytest.mark.parametrize("own", ["127.0.0.1", "::1"])
def test_a_machine_that_nobody_else_reaches_names_the_loopback_that_it_has(
    two_interfaces: None, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    monkeypatch.setattr(module, "interface_addresses", lambda: frozenset({own}))
    monkeypatch.setattr(module, "find_source_address", lambda target, _port: own if target == own else None)
    assert routable_address([]) == own
    monkeypatch.setattr(module, "resolve", lambda _host: ())  # pyright: ignore
    assert binding("gone", []) == Binding(own, own)


@pytest.mark.parametrize("called", ["me", "ME.example.com"])
def test_the_machines_own_name_that_is_only_loopback_listens_everywhere_and_advertises_the_route(
    two_interfaces: None, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: called)
    assert binding("me", ["peer"]) == Binding("0.0.0.0", "198.51.100.2")
    assert binding("me", [], alone=True) == Binding("127.0.1.1", "127.0.1.1"), "no other machine is expected"


def test_any_other_name_that_is_only_loopback_stays_on_loopback(
    two_interfaces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "named")
    assert binding("me", ["peer"]) == Binding("127.0.1.1", "127.0.1.1")


def test_a_name_that_other_machines_may_know_and_that_means_loopback_here_is_told(
    two_interfaces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "other")
    assert module.loopback_alias("me") == "127.0.1.1"
    assert not any(map(module.loopback_alias, ["127.0.0.1", "192.0.2.2", "named", "localhost"]))
    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    assert module.loopback_alias("me") == "", "it listens on every interface"


def test_a_host_name_with_an_interface_listens_there(two_interfaces: None) -> None:
    assert binding("named", ["peer"]) == Binding("192.0.2.2", "192.0.2.2")


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.2", "::1"])
def test_an_address_listens_where_it_says(two_interfaces: None, host: str) -> None:
    assert binding(host, ["peer"]) == Binding(host, host)


def test_localhost_stays_on_loopback() -> None:
    listen = binding("localhost", []).listen
    assert module.is_loopback(listen)


@pytest.mark.parametrize(
    "text",
    ["root:hush@h1", "http://root:hush@h1:2379", "h2,root:hush@h1", "root:hu/sh@h1,h1", "h1,,a:hush@h1", "a:hush@"],
)
def test_a_password_in_an_endpoint_is_not_repeated(text: str) -> None:
    with pytest.raises(MalformedEndpoint) as caught:
        parse_endpoints(text)
    assert "hu" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "found"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("h1", False), ("10.0.0.1", False)]
)
def test_what_stays_on_this_machine_by_its_text(host: str, found: bool) -> None:
    assert Endpoint(host).loopback is found
