"""How a model is trained, and why."""

from elastic_run.adapters.models.strategy import describe_strategy


def test_a_dense_model_is_added_up_in_lockstep() -> None:
    told = describe_strategy(4, 1234, [], launched=True)
    assert told.startswith("in lockstep: 4 workers add up their gradients of its 1,234 numbers")
    assert told.endswith("because it has no elastic_run.torch.Embedding")


def test_tables_are_trained_asynchronously_and_what_is_dense_beside_them_in_lockstep() -> None:
    assert describe_strategy(4, 0, ["user"], launched=True).startswith(
        "asynchronously: the rows of user are on servers"
    )
    told = describe_strategy(4, 10, ["user", "advert"], launched=True)
    assert "the rows of user, advert to servers; and 4 workers add up" in told


def test_one_process_keeps_all_to_itself() -> None:
    assert describe_strategy(1, 10, [], launched=True).startswith("in one process: the job has one worker")
    assert describe_strategy(1, 10, ["user"], launched=False).startswith("in one process, with the rows of user in it")
