"""What the exporter makes of OpenTelemetry's own variables."""

import logging

import pytest

from elastic_run.launcher.telemetry.export import LOGGERS, Exporter


def test_the_variables_of_opentelemetry_may_name_a_batch_that_is_longer_than_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096")
    said: list[str] = []
    Exporter("http://127.0.0.1:1", "job", "node", "host", said.append).close()


def test_a_variable_of_opentelemetry_that_it_cannot_read_leaves_its_loggers_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "x")
    with pytest.raises(ValueError, match="OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"):
        Exporter("http://127.0.0.1:1", "job", "node", "host", print)
    assert all(logging.getLogger(name).propagate for name in LOGGERS)
