"""Who is in the job: members, rounds, ranks, leadership, and the stores that hold them."""
