"""The exporter's HTTP server; only this module needs prometheus_client to be imported."""

from http import HTTPStatus

from prometheus_client import CollectorRegistry, MetricsHandler

from ....rendezvous.store.endpoint import Endpoint
from ...bounded_server import BoundedHandler, BoundedServer


class MetricsServer(BoundedServer):
    """Answers with the metrics of one registry. Raises OSError where the address cannot be used."""

    def __init__(self, where: Endpoint, registry: CollectorRegistry) -> None:
        super().__init__(where.host, where.port, _Handler)
        self.registry = registry


class _Handler(BoundedHandler, MetricsHandler):
    server_version = "elastic-run"
    sys_version = ""
    server: MetricsServer  # pyright: ignore[reportIncompatibleVariableOverride]  the only one that makes it

    def setup(self) -> None:
        super().setup()
        self.registry = self.server.registry

    def do_HEAD(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.end_headers()
