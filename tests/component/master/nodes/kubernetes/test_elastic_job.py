"""What the resource's schema in deploy/ says of an ElasticJob."""

from pathlib import Path

import yaml

from elastic_run.master.nodes.kubernetes import elastic_job

DEPLOY = Path(__file__).parents[5] / "deploy" / "kubernetes"


def test_the_schema_knows_each_field_that_is_read_and_no_other() -> None:
    resource, *_ = yaml.safe_load_all((DEPLOY / "crd.yaml").read_text())
    (version,) = resource["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    read = {"command", "minReplicas", "maxReplicas", "replicas", "roles", "flags", "env", "template", "suspend"}
    assert fields.keys() == read | {elastic_job.TTL} | elastic_job.FLAGS.keys()
    columns = [each["jsonPath"] for each in version["additionalPrinterColumns"]]
    data = [{"name": "a", "shards": 9, "done": 4}]
    found = {"state": "running", "reason": "because", "nodes": {"running": 1}, "datasets": data}
    known = elastic_job.status("digits", found, {}, 7, "2026-01-01T00:00:00Z")
    assert {path.rpartition(".")[2] for path in columns if path.startswith(".status")} <= known.keys()
