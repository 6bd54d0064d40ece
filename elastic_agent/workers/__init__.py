"""The worker processes of this machine: their start, their end and why they failed."""
