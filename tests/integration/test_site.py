"""The pages as a site: links lead somewhere, every page is in the navigation, nothing is loaded from elsewhere.

A browser opens them from the folder, and finds what fits into the column and what the search says.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .browser import opened

ROOT = Path(__file__).parents[2]

MKDOCS = Path(sys.prefix) / "docs" / "bin" / "mkdocs"
"""In an environment of its own, which `make docs` and `make test` make."""

pytestmark = [
    pytest.mark.skipif(not MKDOCS.exists(), reason="mkdocs is not installed here: make docs installs it"),
    pytest.mark.xdist_group("site"),  # it is built once
]

LOADED = re.compile(r"""<(?:script|img|iframe|link)[^>]*\s(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [str(MKDOCS), "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, "\n".join(line for line in done.stderr.splitlines() if not line.startswith("INFO"))
    return folder


def test_every_page_of_the_repository_is_one_of_the_site(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    pages |= {Path("index.html"), Path("CONTRIBUTING.html"), Path("CHANGELOG.html"), Path("decisions/index.html")}
    assert pages - {page.relative_to(site) for page in site.rglob("*.html")} == set()


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loaded = {
        (page.name, address)
        for page in site.rglob("*.html")
        for address in LOADED.findall(page.read_text(encoding="utf-8"))
        if not re.search(r"""rel=["']?canonical""", address)
    }
    assert loaded == set()


def test_every_picture_that_a_page_shows_is_there(site: Path) -> None:
    shown = {
        (page.parent / picture).resolve()
        for page in site.rglob("*.html")
        for picture in re.findall(r'<img[^>]*\ssrc="([^":]+)"', page.read_text(encoding="utf-8"))
    }
    assert len(shown) > 25 and site / "pictures" / "rounds.svg" in shown
    assert [str(picture) for picture in shown if not picture.exists()] == []


def test_every_public_name_has_its_docstring_there(site: Path) -> None:
    page = (site / "python-api.html").read_text(encoding="utf-8")
    names = re.findall(
        r"^\| `(elastic_run\.[\w.]+)`", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    other = {"elastic_run.__version__", "elastic_run.exceptions", "elastic_run.tensorflow.Records"}
    assert [name for name in names if name not in other and f'id="{name}"' not in page] == []


def test_no_cell_of_a_table_shows_a_backslash_before_a_bar(site: Path) -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
    assert "--nnodes=N|MIN:MAX" in pages["command-line.html"]
    assert [name for name, page in pages.items() if re.search(r"<td>[^\n]*\\\|", page)] == []


IN_SEVERAL_LINES = """[...document.querySelectorAll(".md-content .word")]
    .filter((word) => word.innerText.length <= 40 && word.getClientRects().length > 1).map((word) => word.innerText)"""

TOO_WIDE = """[...document.querySelectorAll(".md-content .terminal pre > code")]
    .filter((block) => block.scrollWidth > block.clientWidth).map((block) => block.innerText)"""


def test_opened_from_its_folder_a_page_is_searched_and_fits_into_its_column(site: Path) -> None:
    with opened() as browser:
        for width in (1400, 390):
            browser.look(width, 900)
            for name in ("command-line", "diagnosis", "torchrun", "index"):
                browser.go((site / f"{name}.html").as_uri())
                assert browser.value("document.querySelectorAll('.word, .terminal').length") > 5
                assert browser.value(IN_SEVERAL_LINES) == []
                assert browser.value(TOO_WIDE) == []
        browser.go(f"{(site / 'index.html').as_uri()}?q=hang-timeout")
        browser.until(lambda: browser.value("document.querySelectorAll('.md-search-result__item').length") > 1)
        assert "hang-timeout" in browser.value("document.querySelector('.md-search-result__list').innerText")
        assert browser.failures == []
