"""What the words of a command ask for."""

from pathlib import Path

import pytest

from elastic_run.adapters.models.commands import VERBS, flags_of, read_task
from elastic_run.adapters.models.errors import BadModel


def test_the_state_is_named_by_the_model_and_a_shard_has_sixteen_batches() -> None:
    task = read_task(["train", "models/clicks.py", "--data=a", "--data=b", "--batch-size=10"])
    assert (task.state, task.shard_size, task.data) == (Path("clicks.pt"), 160, ("a", "b"))
    assert (task.validate, task.epochs, task.bad, task.kinds) == ((), 1, 0.0, {})
    given = read_task(["predict", "model.py", "--data=a", "--output=b", "--kinds=a,b: c:float64,zip:str"])
    assert given.kinds == {"a,b: c": "float64", "zip": "str"}


def test_a_script_that_is_the_model_is_not_named() -> None:
    assert read_task(["evaluate", "--data=a"], script="clicks.py").model == "clicks.py"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "say what to do: train, evaluate, predict"),
        (["learn", "model.py"], "say what to do"),
        (["train", "model.py"], "required: --data: elastic-run train --help lists"),
        (["train", "model.py", "--data=a", "--batch-size=0"], "'0' is not a whole number from 1"),
        (["train", "model.py", "--data=a", "--seed=-1"], "'-1' is not a whole number from 0 to 4294967295"),
        (["train", "model.py", "--data=a", "--bad=1"], "'1' is not a share from 0 to below 1"),
        (["train", "model.py", "--data=a", "--kinds=age:int"], "'age:int' is not NAME:KIND"),
        (["evaluate", "model.py", "--data=a", "--epochs=2"], "unrecognized arguments: --epochs=2"),
    ],
)
def test_what_cannot_be_meant_is_told(words: list[str], told: str) -> None:
    with pytest.raises(BadModel, match=told):
        read_task(words)


def test_no_flag_of_a_command_is_one_of_the_launcher() -> None:
    from elastic_run.launcher.options.flags import BY_NAME

    own = {flag.removeprefix("--") for verb in VERBS for flag in flags_of(verb)} - {"-h", "help"}
    assert own & BY_NAME.keys() == set() and "batch-size" in own
