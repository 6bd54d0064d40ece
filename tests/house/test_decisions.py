"""Each decision says whether it holds, and since when: the site's list shows it."""

import re
from pathlib import Path

import pytest

DECISIONS = sorted((Path(__file__).parents[2] / "docs" / "decisions").glob("*.md"))


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_a_number_a_status_and_a_date(page: Path) -> None:
    title, _, rest = page.read_text(encoding="utf-8").partition("\n")
    assert title.startswith(f"# {page.name[:3]}: ")
    assert re.match(r"\nStatus: (accepted|replaced by \d{3}), \d{4}-\d\d-\d\d\.\n", rest)
