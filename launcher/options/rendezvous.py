"""Where the job's store is, how it is reached, and with which timing: `--rdzv-*`, credentials, the job's secret."""

import math
import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from ...rendezvous.host.own_files import NotOwn, read_own
from ...rendezvous.store.endpoint import DEFAULT_PORT, authority, parse_endpoints
from ..errors import UsageError
from ..settings import Credentials, Nodes, Store, Timing, Trust
from ..trust import trust_of
from .flags import Scanned, did_you_mean
from .preflight import check_readable
from .values import folder_of, seconds, whole

MIN_LEASE_TTL = 2
"""Seconds. Etcd looks for expired leases every half second, and a keep-alive needs time to arrive."""

CONF_ALIASES: Mapping[str, str] = {"last_call": "last_call_timeout", "timeout": "join_timeout"}
"""Other names of our keys in `--rdzv-conf`; `timeout` is that of torchrun's static and etcd backends."""

CONF_KEEP_ALIVE = ("keep_alive_interval", "keep_alive_max_attempt")
"""Torchrun's two keys whose product is our lease_ttl; its defaults are 5 and 3."""

CONF_CREDENTIALS: Mapping[str, str] = {
    "cacert": "etcd-cacert",
    "ca_cert": "etcd-cacert",
    "cert": "etcd-cert",
    "ssl_cert": "etcd-cert",
    "key": "etcd-key",
    "ssl_cert_key": "etcd-key",
}
"""Torchrun's keys for its etcd backends, and the flags of ours that they stand for."""

CONF_HOST = "is_host"
"""Torchrun's key that says whether this node serves the store; false: it starts no etcd, whoever the endpoint is."""

CONF_WITHOUT_EFFECT: Mapping[str, str] = {
    "read_timeout": "each call to the store has its own short deadline",
    "heartbeat_timeout": "lease_ttl determines when a silent node is lost",
    "store_type": "the store is etcd, or inside the agent",
    "rank": "--node-rank sets it",
    "etcd_prefix": "a job's keys are under /elastic-run/<id>/",
}
"""Torchrun's keys that say nothing here, each with the reason."""


def read_conf(scanned: Scanned, notes: list[str]) -> tuple[Timing, dict[str, str], bool]:
    """`--rdzv-conf`: the timing; credentials (by flag name; `protocol` beside them); whether an etcd may be started."""
    timing = {knob.name for knob in fields(Timing)}
    known = [*timing, *CONF_ALIASES, *CONF_KEEP_ALIVE, *CONF_CREDENTIALS, *CONF_WITHOUT_EFFECT, CONF_HOST, "protocol"]
    origin = scanned.source("rdzv-conf").partition("=")[0].partition(" ")[0]
    times: dict[str, float] = {}
    aliased: dict[str, float] = {}
    keep_alive: dict[str, float] = {}
    credentials: dict[str, str] = {}
    hosted = True
    for pair in (pair.strip() for pair in (scanned.text("rdzv-conf") or "").split(",")):
        if not pair:
            continue
        key, equals, value = (part.strip() for part in pair.partition("="))
        where = f"{origin}: {pair}"
        if key not in known:
            raise UsageError(
                f"{origin}: unknown key {key!r}{did_you_mean(key, known)} Ours are {', '.join(sorted(timing))}"
            )
        if not equals or not value:
            raise UsageError(f"{where} has no value: write {key}=VALUE")
        if key in timing:
            times[key] = seconds(value, where)
        elif key in CONF_ALIASES:
            aliased[CONF_ALIASES[key]] = seconds(value, where)
        elif key in CONF_KEEP_ALIVE:
            keep_alive[key] = seconds(value, where)
        elif key in CONF_CREDENTIALS:
            credentials[CONF_CREDENTIALS[key]] = value
        elif key == "protocol":
            if value.lower() not in ("http", "https"):
                raise UsageError(f"{where} is neither http nor https")
            credentials["protocol"] = value.lower()
        elif key == CONF_HOST:
            if value.lower() not in ("true", "false", "1", "0", "t", "f"):
                raise UsageError(f"{where} is neither true nor false")
            hosted = value.lower() in ("true", "1", "t")
        else:
            notes.append(f"{where} has no effect: {CONF_WITHOUT_EFFECT[key]}")
    if keep_alive and "lease_ttl" not in times:
        product = keep_alive.get("keep_alive_interval", 5.0) * keep_alive.get("keep_alive_max_attempt", 3.0)
        ttl = max(MIN_LEASE_TTL, math.ceil(product))
        notes.append(
            f"{origin}: {' and '.join(keep_alive)} {'is' if len(keep_alive) == 1 else 'are'} read as lease_ttl={ttl}: "
            "a node that is silent for so many seconds is lost"
        )
        times["lease_ttl"] = ttl
    times = aliased | times
    if (ttl := times.get("lease_ttl")) is not None:
        if ttl < MIN_LEASE_TTL or ttl != int(ttl):
            raise UsageError(f"{origin}: lease_ttl={ttl:g} must be whole seconds, at least {MIN_LEASE_TTL}")
        times["lease_ttl"] = int(ttl)
    timing = replace(Timing(), **times)  # pyrefly: ignore[bad-argument-type]  lease_ttl is whole, as said above
    return timing, credentials, hosted


def read_credentials(scanned: Scanned, conf: Mapping[str, str], environ: Mapping[str, str]) -> Credentials:
    paths: dict[str, Path | None] = {}
    for name in ("etcd-cacert", "etcd-cert", "etcd-key"):
        text = scanned.text(name) or conf.get(name)
        if text is not None:
            check_readable(text, f"--{name}={text}")
        paths[name] = Path(text) if text is not None else None
    cacert, cert, key = paths.values()
    if (cert is None) != (key is None):
        raise UsageError("--etcd-cert and --etcd-key belong together: give both, or neither")
    user, password = "", ""
    if (text := scanned.text("etcd-user")) is not None:
        source = scanned.source("etcd-user")
        if text.startswith("@"):
            check_readable(text[1:], source)
            try:
                user, colon, password = read_own(Path(text[1:]), shared=True).strip().partition(":")
            except NotOwn as error:
                raise UsageError(f"{source}: {error}") from None
            if not (user and colon and password) or "\n" in password:
                raise UsageError(f"{source}: the file must hold one line, user:password")
        elif ":" in text:
            # Not echoed: the message may end up in a log.
            raise UsageError(
                "--etcd-user: every user of this machine can read a password on a command line: put it into "
                "ELASTIC_RUN_ETCD_PASSWORD, or user:password into a file and write --etcd-user=@FILE"
            )
        else:
            user, password = text, environ.get("ELASTIC_RUN_ETCD_PASSWORD", "")
            if not password:
                raise UsageError(f"{source} has no password: put it into ELASTIC_RUN_ETCD_PASSWORD")
    if conf.get("protocol") == "http" and (cacert or cert):
        raise UsageError("--rdzv-conf: protocol=http contradicts the certificates: leave out one of them")
    tls = cacert is not None or cert is not None or conf.get("protocol") == "https"
    return Credentials(tls, cacert, cert, key, user, password)


def read_trust(scanned: Scanned, environ: Mapping[str, str], *, here: bool) -> tuple[Scanned, Trust]:
    """How the nodes prove themselves; and the flags, with what a line to join says where they do not say it."""
    insecure = scanned.has("insecure")
    own = [scanned.text(name) for name in ("tls-cert", "tls-key", "tls-ca")]
    if here:
        for name, text in zip(("tls-cert", "tls-key", "tls-ca"), own, strict=True):
            if text is not None:
                check_readable(text, f"--{name}={text}")
    trust, invitation = trust_of(
        insecure=insecure, join_file=scanned.text("join-file"), own=own, environ=environ, here=here
    )
    if invitation is not None and invitation.endpoints and not scanned.has("rdzv-endpoint"):
        scanned = scanned.including("rdzv-endpoint", invitation.endpoints)
    if invitation is not None and invitation.job and not scanned.has("rdzv-id"):
        scanned = scanned.including("rdzv-id", invitation.job)
    return scanned, trust


def read_store(
    scanned: Scanned, nodes: Nodes, credentials: Credentials, environ: Mapping[str, str], notes: list[str]
) -> Store:
    directory = folder_of(scanned, "store-dir")
    endpoint = (scanned.text("rdzv-endpoint") or "").strip()
    backends = ("c10d", "etcd", "etcd-v2", "static")
    backend = scanned.text("rdzv-backend") or ""
    if backend not in backends:
        raise UsageError(
            f"{scanned.source('rdzv-backend')} is not one of {', '.join(backends)} (all select the etcd store at the "
            f"endpoint){did_you_mean(backend, backends)}"
        )
    master = [name for name in ("master-addr", "master-port") if scanned.has(name)]
    port = whole(scanned, "master-port", 1, 65535, "ports are 1 to 65535")
    default_port = DEFAULT_PORT
    alone = scanned.has("standalone")
    if alone or (nodes.maximum == 1 and (not endpoint or _any_port(endpoint))):
        idle = [*master, "store-dir", "rdzv-endpoint"] if alone else [*master, "store-dir"]
        for name in idle:
            if scanned.has(name) and scanned.text(name):
                notes.append(f"{scanned.source(name)} has no effect: a job of one node keeps its store in the agent")
        if credentials.user or credentials.tls:
            notes.append("the credentials for etcd have no effect: a job of one node keeps its store in the agent")
        return Store("memory")
    if endpoint:
        text, source = endpoint, scanned.source("rdzv-endpoint")
        for name in master:
            notes.append(f"{scanned.source(name)} has no effect: --rdzv-endpoint says where the store is")
        if _any_port(endpoint):
            raise UsageError(
                f"{source}: port 0 means any free port, and the other nodes cannot know which: give a port"
            )
    elif scanned.has("master-addr"):
        host = (scanned.text("master-addr") or "").strip().removeprefix("[").removesuffix("]")
        text, source = authority(host, port), scanned.source("master-addr")
        if host == "localhost" or host == "::1" or host.startswith("127."):
            notes.append(
                f"{source} is a loopback address: nodes on other machines cannot connect to it. "
                "Give the address by which they reach this machine"
            )
    else:
        default_port = port if master else DEFAULT_PORT
        if credentials.user or credentials.tls:
            raise UsageError(
                "credentials for etcd are given, but no etcd: name yours with --rdzv-endpoint=HOST:PORT (an etcd "
                "that elastic-run starts needs no credentials)"
            )
        from .slurm import allocation_host  # here, because a job of one node needs no host

        try:
            host = allocation_host(environ)
        except ValueError as error:
            raise UsageError(f"SLURM_JOB_NODELIST: {error}: name the store with --rdzv-endpoint=HOST") from None
        text, source = (authority(host, default_port) if host else ""), "SLURM_JOB_NODELIST"
    try:
        endpoints = parse_endpoints(text, default_port=DEFAULT_PORT) if text else ()
    except ValueError as error:
        raise UsageError(f"{source.partition('=')[0]}: {error}") from None
    if credentials.tls or any(endpoint.tls for endpoint in endpoints):
        # One client speaks to all of them: https:// before one address, or a certificate, means TLS for all.
        credentials = replace(credentials, tls=True)
        endpoints = tuple(replace(endpoint, tls=True) for endpoint in endpoints)
    elif credentials.user and not scanned.has("insecure") and not all(endpoint.loopback for endpoint in endpoints):
        raise UsageError(
            f"{scanned.source('etcd-user')}: without TLS the password of {credentials.user} goes over the network for "
            "everybody to read: write https:// before the endpoint, or give --etcd-cacert (--insecure sends it anyway)"
        )
    if not credentials.tls and (credentials.user or any(endpoint.plain for endpoint in endpoints)):
        # As above; and who has a user in it runs that etcd.
        endpoints = tuple(replace(endpoint, plain=True) for endpoint in endpoints)
    if backend == "etcd-v2":
        notes.append(f"{scanned.source('rdzv-backend')} is read as etcd: elastic-run uses version 3 of its protocol")
    kind = "endpoints" if endpoint or scanned.has("master-addr") else "implicit"
    return Store(kind, endpoints, credentials, directory, default_port)


def _any_port(endpoint: str) -> bool:
    """One of the endpoints has port 0, torchrun's idiom for any free port."""
    return any(re.search(r":0+$", part.strip()) for part in endpoint.split(","))
