"""What mkdocs does with these pages, which are written to be read in the repository as well.

Pages of the root (README, CONTRIBUTING, ...) become pages of the site. A link to a file that is no page becomes the
name of that file, because the site holds no source. The pages of the Python API and of the flags, and the list of
decisions, are made here. What `pages.css` is to lay out in another way gets its class here.
"""

import ast
import importlib
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT_PAGES = ("README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md", "SECURITY.md")

API, COMMAND_LINE, DECISIONS = "python-api.md", "command-line.md", "decisions/index.md"

MODULES = (
    "elastic_run",
    "elastic_run.torch",
    "elastic_run.tensorflow",
    "elastic_run.jax",
    "elastic_run.xgboost",
    "elastic_run.data",
    "elastic_run.trace",
    "elastic_run.compat",
    "elastic_run.exceptions",
)

SAME = {("elastic_run.tensorflow", "Records")}
"""Names that are another module's: they are shown there."""

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
"""Of a page or, with a mark before it, a picture."""

CODE = re.compile(r"(^```.*?^```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)

WORDS = re.compile(r"(?<!</span>)<code>[^<]*</code>")
"""Code within a line."""

WORD = re.compile(r"(?<![^\s>])(?:[^\s<>&]{1,40}(?![^\s<])|--?[a-z][\w-]*)")
"""What a browser would break where there is a dash or no room; of a long one only the flag."""

BLOCK = re.compile(r'<div class="highlight">(<pre>.*?</pre>)', re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that do not lie in the folder of the pages."""
    root = Path(config.docs_dir).parent
    for name in ROOT_PAGES:
        if (root / name).exists():
            files.append(File.generated(config, name, content=(root / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, API, content=_python_api(root)))
    files.append(File.generated(config, COMMAND_LINE, content=_command_line(root)))
    files.append(File.generated(config, DECISIONS, content=_decisions(root / "docs" / "decisions")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points each link to a page or picture of the site, or takes it away."""
    # Where the page lies in the repository, and in the site.
    uri = page.file.src_uri
    home = "" if uri in ROOT_PAGES else posixpath.join("docs", posixpath.dirname(uri))

    def pointed(found: "re.Match[str]") -> str:
        mark, text, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, _, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(home, path))
        name = "decisions/index.md" if there == "docs/decisions" else there.removeprefix("docs/")
        if files.get_file_from_path(name) is None or (there not in ROOT_PAGES and not there.startswith("docs/")):
            return text if "`" in text else f"`{text}`" if re.fullmatch(r"[\w./-]+", text) else text
        to = posixpath.relpath(name, posixpath.dirname(uri) or ".")
        return f"{mark}[{text}]({to}{'#' + anchor if anchor else ''})"

    parts = CODE.split(markdown)
    return "".join(part if number % 2 else LINK.sub(pointed, part) for number, part in enumerate(_whole(parts)))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks words in code, and blocks that show a terminal: those without a language, and transcripts; no drawings."""

    def shown(found: "re.Match[str]") -> str:
        typed = '<span class="gp">' in found[1] or '<span class="' not in found[1]
        return f'<div class="highlight terminal">{found[1]}' if typed and "┌" not in found[1] else found[0]

    html = WORDS.sub(lambda code: WORD.sub(r'<span class="word">\g<0></span>', code[0]), html)
    return BLOCK.sub(shown, html)


def _whole(parts: list[str]) -> list[str]:
    """Inline code within a link's text belongs to the link: only fences are kept apart."""
    joined = [""]
    for number, part in enumerate(parts):
        if number % 2 and part.startswith("```"):
            joined += [part, ""]
        else:
            joined[-1] += part
    return joined


def _python_api(root: Path) -> str:
    """A heading for each public module, and under it what its `__all__` lists."""
    lines = ["# Python API", "", "Made from the docstrings. [The names by purpose](api.md) has links to the pages.", ""]
    for module in MODULES:
        lines += [f"## {module}", ""]
        names = _public(root / "src" / module.replace(".", "/"))
        lines += [
            f"::: {module}.{name}\n"
            for name in names
            if (module, name) not in SAME and f"{module}.{name}" not in MODULES
        ]
    return "\n".join(lines)


def _public(path: Path) -> list[str]:
    """The names that the module's source lists."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        target: Any = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)  # any node
        if isinstance(target, ast.Name) and target.id == "__all__" and isinstance(node, ast.Assign | ast.AnnAssign):
            names = ast.literal_eval(node.value) if node.value is not None else []
            return [name for name in names if not name.startswith("__")]
    raise ValueError(f"{file} lists no public names")


def _command_line(root: Path) -> str:
    """A heading for each group of flags, as in the help, and under it a row for each flag."""
    sys.path.insert(0, str(root / "src"))
    try:
        flags = importlib.import_module("elastic_run.launcher.options.flags").FLAGS  # which needs no other package
    finally:
        sys.path.remove(str(root / "src"))
    lines = [
        "# Flags",
        "",
        "Made from the table that `elastic-run --help` prints; `elastic-run [flags] SCRIPT [arguments]`.",
        "",
    ]
    lines += ["The page [from torchrun](torchrun.md) compares them with torchrun's.", ""]
    for group in dict.fromkeys(flag.group for flag in flags):
        lines += [f"## {group}", "", "| flag | | default | in the environment |", "|---|---|---|---|"]
        for flag in (flag for flag in flags if flag.group == group):
            letter = f"`-{flag.short}`, " if flag.short else ""
            name = f"{letter}`--{flag.name}{'=' if flag.metavar else ''}{flag.metavar}`"
            default, mirror = (f"`{word}`" if word else "" for word in (flag.default, flag.mirror))
            words = re.sub(r"(?<![\w-])--[a-z][\w-]*", r"`\g<0>`", flag.help.replace("|", "\\|"))
            # Within backticks a bar parts no cells, and a backslash would be shown.
            lines.append(f"| {name} | {words} | {default} | {mirror} |")
        lines.append("")
    return "\n".join(lines)


def _decisions(folder: Path) -> str:
    """A row for each decision: its title, its status and the day of that, from the first lines of its page."""
    lines = ["# Decisions", "", "Each had a real alternative.", "", "| decision | status | since |", "|---|---|---|"]
    for file in sorted(folder.glob("*.md")):
        head = file.read_text(encoding="utf-8")
        found = re.search(r"^Status: (.+), (\d{4}-\d\d-\d\d)\.$", head, re.MULTILINE)
        status, since = found.groups() if found else ("", "")
        title = head.partition("\n")[0].lstrip("# ")
        lines.append(f"| [{title}]({file.name}) | {status} | {since} |")
    return "\n".join(lines) + "\n"
