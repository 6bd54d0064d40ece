"""Where a node has the files of a model that was submitted (pure)."""

from typing import Any

MODEL_FOLDER = "/var/run/elastic-run/model"
"""In the container that runs the node."""


def name_model(job: str) -> str:
    """The ConfigMap with these files."""
    return f"{job}-model"


def mount_model(job: str, spec: dict[str, Any], container: dict[str, Any]) -> None:  # Any: an object of the API
    """Gives a pod and that container of it these files."""
    volume = name_model(job)
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": volume, "configMap": {"name": volume}}]
    mount = {"name": volume, "mountPath": MODEL_FOLDER, "readOnly": True}
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]
