"""What the master decides (pure): events in, effects out."""
