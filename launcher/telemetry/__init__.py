"""Each recovery as a trace of OpenTelemetry (`--otlp`), from the events that `--trace` writes.

recovery.py   which events are one recovery (pure)
export.py     sends them to a collector, and costs the job nothing where that is slow or gone
"""
