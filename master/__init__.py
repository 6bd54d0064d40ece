"""One per job: opens rounds, judges incidents, evicts the dead; runs inside the elected agent."""
