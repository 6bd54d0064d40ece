"""What a script imports, in any framework: a worker's side of the agent and of the ledger."""
