"""This node in the job: its key and lease, the rounds that it hears of, what tells it to go, and how it goes."""
