"""Where this node is for the others, and where its store is."""

from ..rendezvous.base.errors import RendezvousError
from ..rendezvous.base.frozen import dataclass
from ..rendezvous.store.endpoint import (
    Endpoint,
    binding,
    interface_addresses,
    is_loopback,
    loopback_address,
    resolve,
    routable_address,
)
from .settings import Options


class Unreachable(RendezvousError):
    """The others could not reach this node under the address that it was given."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where this node is for the others.

    Attributes:
        host: what they call it.
        bind: what its own listener binds; None where there are no others.
    """

    host: str
    bind: str | None


def address_of(options: Options, endpoints: tuple[Endpoint, ...]) -> Address:
    """Which address this node has for the others: loopback, unless an endpoint or `--local-addr` says otherwise."""
    if options.store.kind == "memory":
        return Address(loopback_address(), None)
    if options.local_addr:
        if not resolve(options.local_addr):
            raise Unreachable(
                f"--local-addr={options.local_addr} does not resolve here: give this machine's address, or a "
                "name that the other machines know"
            )
        bound = binding(options.local_addr, endpoints)
        reachable = any(not is_loopback(address) for address in resolve(options.local_addr))
        return Address(options.local_addr if reachable else bound.advertise, bound.listen)
    addresses = [resolve(endpoint.host) for endpoint in endpoints]
    if all(found and all(map(is_loopback, found)) for found in addresses) and options.store.kind != "implicit":
        names_loopback = all(
            endpoint.host == "localhost" or endpoint.host in found
            for endpoint, found in zip(endpoints, addresses, strict=True)
        )
        if names_loopback:
            return Address(addresses[0][0], addresses[0][0])
    interfaces = interface_addresses()
    own = [address for found in addresses for address in found if address in interfaces and not is_loopback(address)]
    host = own[0] if own else routable_address(endpoints)  # the address that an endpoint names is the one to go by
    return Address(host, host)


def endpoints_of(options: Options) -> tuple[Endpoint, ...]:
    """Where the store is; this machine where several nodes and no endpoint are given."""
    if options.store.kind == "implicit" and not options.store.endpoints:
        return (Endpoint(options.local_addr or routable_address(()), options.store.port),)
    return options.store.endpoints
