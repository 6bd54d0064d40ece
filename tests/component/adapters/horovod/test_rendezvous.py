"""What Horovod's workers say and hear, without Horovod: places, messages, the store of a round."""

import ssl
from dataclasses import replace
from functools import partial

import pytest

from elastic_run.adapters.contract import Peer, Round
from elastic_run.adapters.horovod.node_rendezvous import listen_for_nodes, respond_from, told_by
from elastic_run.adapters.horovod.requests import BadRequest, Request, ask, serve
from elastic_run.adapters.horovod.round_store import RoundStore
from elastic_run.adapters.services import line
from elastic_run.rendezvous.identity.contexts import Identity
from elastic_run.rendezvous.identity.secret import new_secret

PEERS = tuple(Peer(rank, f"10.0.0.{node}", (20000 + rank,), "default", node) for rank, node in enumerate((0, 0, 1, 1)))

ROUND = Round("job", 3, 4, 2, "10.0.0.0", 23456, peers=PEERS, services={"rendezvous": "eth1 4711 4712"})


async def test_nodes_with_the_jobs_secret_reach_the_store_of_a_round_and_others_do_not() -> None:
    secret, store = new_secret(), RoundStore(4)
    told = told_by(line(ROUND, 0, Identity(secret).written()))
    server = await listen_for_nodes(
        replace(told, master_addr="127.0.0.1", master_port=0), partial(serve, partial(respond_from, store, 3))
    )
    port = server.sockets[0].getsockname()[1]
    put, get = Request("PUT", "/3/value/key", b"value"), Request("GET", "/3/value/key")
    try:
        await ask("127.0.0.1", port, put, told_by(line(ROUND, 1, Identity(secret).written())).dials)
        assert await ask("127.0.0.1", port, get, told.dials) == b"value"
        stranger = told_by(line(ROUND, 1, Identity(new_secret()).written())).dials
        assert stranger is not None
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
        for tls in (None, stranger):
            with pytest.raises((OSError, EOFError, BadRequest)):
                await ask("127.0.0.1", port, put, tls)
    finally:
        server.close()
        await server.wait_closed()
