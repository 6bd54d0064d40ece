"""What an agent sees of its workers from outside, while they run: whether they make progress, and where they are."""
