"""The command for jobs in a cluster where there is none."""

import pytest

from elastic_run.launcher.cluster.command import main


def test_without_a_cluster_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert main(["list"]) == 2
    assert "no Kubernetes cluster is configured" in capsys.readouterr().err
