"""A step's text says what the step is, whatever the variables are."""

import pytest

from elastic_run.elastic_agent.warm.step import BETWEEN_FOLDERS, SEPARATOR, Step, step_name, step_text


def test_a_name_alone_is_its_own_text() -> None:
    assert step_text("numpy.linalg", {}) == "numpy.linalg"


@pytest.mark.parametrize("value", ["1", "", "a=b", "two\nlines", "\udcff", None])
def test_what_was_set_or_removed_comes_back(value: str | None) -> None:
    text = step_text("torch", {"OMP_NUM_THREADS": value, "OTHER": "x"})
    step = Step(text)
    assert (step.name, step.environment) == ("torch", {"OMP_NUM_THREADS": value, "OTHER": "x"})
    assert step_name(text) == "torch"


@pytest.mark.parametrize("path", [[""], ["/a b", "", "c=d"], ["/only"]])
def test_the_search_path_comes_back(path: list[str]) -> None:
    step = Step(step_text("torch", {"A": "1", "B": None}, path))
    assert (step.name, step.environment, step.path) == ("torch", {"A": "1", "B": None}, path)


def test_a_step_says_whether_it_needs_anything() -> None:
    assert Step("torch").needs_nothing
    assert not Step(step_text("torch", {"A": None})).needs_nothing
    assert not Step(step_text("torch", {}, [""])).needs_nothing


@pytest.mark.parametrize("path", [[], [f"a{SEPARATOR}"], [f"a{BETWEEN_FOLDERS}b"]])
def test_a_search_path_that_cannot_be_told_is_refused(path: list[str]) -> None:
    with pytest.raises(ValueError, match="cannot be told"):
        step_text("torch", {}, path)


def test_a_value_that_holds_the_separator_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be told"):
        step_text("torch", {"ODD": f"a{SEPARATOR}b"})
