"""What an agent decides (pure): the state of its node in, actions out."""
