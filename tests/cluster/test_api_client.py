"""How the API server is reached: the addresses, certificates, tokens and connections that `Api` has to live with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.config import incluster_config

from elastic_run.master.nodes.kubernetes.api import Api, ApiRefused, ApiUnavailable
from elastic_run.master.nodes.platform import PlatformRefused

from ..doubles.api_double import ApiDouble
from ..doubles.double_objects import ADMIN


@pytest.fixture(params=["127.0.0.1", "::1"])
def secure(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ApiDouble]:
    with ApiDouble(tmp_path, host=request.param, tls=True) as made:
        yield made


def names(api: Api) -> list[str]:
    return [each["metadata"]["name"] for each in api.ask_now("get", api.path("configmaps"))["items"]]


def test_a_server_with_a_certificate_is_reached_at_an_address_of_either_kind(secure: ApiDouble) -> None:
    api = Api.load("", str(secure.kubeconfig))
    assert names(api) == []
    api.close()


def test_a_server_whose_certificate_another_has_signed_is_not_trusted(secure: ApiDouble, tmp_path: Path) -> None:
    text = secure.kubeconfig.read_text().replace(str(tmp_path / "ca.crt"), "/etc/ssl/certs/ca-certificates.crt")
    other = tmp_path / "other"
    other.write_text(text)
    api = Api.load("", str(other))
    with pytest.raises(ApiUnavailable, match="certificate verify failed"):
        names(api)
    api.close()


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a pod finds of its service account."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    return tmp_path


def test_in_a_pod_it_is_found_by_the_service_account_whose_token_is_replaced(
    pod: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ApiDouble(pod, host="::1", tls=True) as double:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", double.url.rpartition(":")[2])
        double.users |= {"first": ADMIN}
        (pod / "token").write_text("first")
        loader = incluster_config.InClusterConfigLoader
        monkeypatch.setattr(loader, "_read_token_file", counted := Counted(loader._read_token_file))
        api = Api.load("team")
        assert names(api) == [] and counted.times == 1
        double.users = {"second": ADMIN}
        (pod / "token").write_text("second")
        with pytest.raises(ApiRefused, match="Unauthorized"):
            names(api)  # it is read once a minute
        counted.expire()
        assert names(api) == []
        (pod / "token").write_text("")
        counted.expire()
        with pytest.raises(ApiUnavailable, match="empty"):
            names(api)
        api.close()


def test_what_was_connected_before_the_server_came_back_is_connected_anew(tmp_path: Path) -> None:
    with ApiDouble(tmp_path) as double:
        api = Api.load("", str(double.kubeconfig))
        assert names(api) == []
        double.down()
        with pytest.raises(ApiUnavailable):
            names(api)
        double.up()
        assert names(api) == []
        api.close()


def test_without_a_configuration_it_says_so(pod: Path) -> None:
    with pytest.raises(PlatformRefused, match="no Kubernetes cluster is configured"):
        Api.load("team")


class Counted:
    """Reads of a token's file, which are a minute apart, unless `expire` is called."""

    def __init__(self, read: object) -> None:
        self._read = read
        self._loader: object = None
        self.times = 0

    def __get__(self, loader: object, kind: type) -> object:
        self._loader = loader

        def read() -> None:
            self.times += 1
            self._read(loader)  # type: ignore[operator]  a method of the package

        return read

    def expire(self) -> None:
        self._loader.token_expires_at = self._loader.token_expires_at.replace(year=2000)  # type: ignore[attr-defined]
