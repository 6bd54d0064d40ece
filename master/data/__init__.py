"""The ledger of the job's data: which records are trained on, and who has them."""
