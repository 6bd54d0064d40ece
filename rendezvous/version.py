"""The version of elastic-run: nodes of one job must have the same."""

VERSION = "0.1.0"
