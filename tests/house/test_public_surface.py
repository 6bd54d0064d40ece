"""The public names: what stands behind each, the page that lists them.

What loads a framework is checked in tests/integration/test_loading.py.
"""

import re

import pytest

import elastic_run

from . import pages
from .surface import (
    DOCUMENTED,
    MEMBERS,
    NAMES,
    SURFACE,
    check_class,
    check_classes,
    check_docstrings,
    check_module,
    loaded,
    without_frameworks,
)


@pytest.mark.parametrize("module", without_frameworks(SURFACE))
def test_dir_lists_the_public_names_and_no_others(module: str) -> None:
    check_module(module)


@pytest.mark.parametrize("path", without_frameworks(MEMBERS))
def test_a_class_has_the_public_members_and_no_others(path: str) -> None:
    check_class(path)


def test_every_public_class_is_in_the_list_of_members() -> None:
    check_classes(without_frameworks(NAMES), without_frameworks(MEMBERS))


@pytest.mark.parametrize("path", without_frameworks(DOCUMENTED))
def test_every_public_name_has_a_docstring_with_the_public_paths_of_its_errors(path: str) -> None:
    check_docstrings(path)


def test_the_page_has_every_public_name_and_no_others() -> None:
    page = pages.page("api")
    named = set(re.findall(r"^\| `(elastic_run[\w.]*)` \|", page, re.MULTILINE))
    errors = set(re.findall(r"^\| `([A-Z]\w+)` \|", page, re.MULTILINE))
    assert errors == set(SURFACE["elastic_run.exceptions"])
    assert named - {"elastic_run.exceptions"} == {
        path for path in NAMES if path not in SURFACE and not path.startswith("elastic_run.exceptions.")
    }


def test_the_page_says_which_of_pythons_own_each_error_is() -> None:
    page = pages.page("api")
    for name, base in re.findall(r"^\| `([A-Z]\w+)` \| (?:`(\w+)`)? ?\|", page, re.MULTILINE):
        kind = loaded(f"elastic_run.exceptions.{name}")
        own = [each.__name__ for each in kind.__bases__ if each.__module__ == "builtins"]
        assert own == ([base] if base else []), name


@pytest.mark.parametrize("name", SURFACE["elastic_run.exceptions"])
def test_every_error_derives_from_the_base_and_shows_its_public_path(name: str) -> None:
    kind = loaded(f"elastic_run.exceptions.{name}")
    assert issubclass(kind, elastic_run.exceptions.ElasticRunError) and issubclass(kind, Exception)
    assert f"{kind.__module__}.{kind.__qualname__}" == f"elastic_run.exceptions.{name}"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'elastic_run' has no attribute 'nonsense'"):
        _ = elastic_run.nonsense


def test_the_context_is_frozen() -> None:
    with pytest.raises(AttributeError):
        elastic_run.context({}).rank = 1
