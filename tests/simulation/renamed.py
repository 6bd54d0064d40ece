"""python -m tests.simulation.renamed: shows that no planted defect depends on a private name of the product.

Writes a copy of the product in which every local variable and every private name (`_x`, `self._x`) is another, and runs
all planted defects on it. What the simulator does not load stays as it is, and so does a parameter that some call names.
"""

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .mutants import MUTANTS
from .patterns import bindings, is_private, name_field
from .planted import ROOT, product

ROOMS = ("adapters", "elastic_agent", "launcher", "master", "rendezvous", "src", "tests/simulation")


@dataclass(frozen=True, slots=True)
class Names:
    """What is renamed, and what is not.

    Attributes:
        private: the new names of all that is private, by the old.
        keywords: what calls name; a parameter of this name keeps it.
    """

    private: Mapping[str, str]
    keywords: frozenset[str]

    @classmethod
    def of(cls, sources: Iterable[str]) -> "Names":
        """The names of these modules, which use each other."""
        private: set[str] = set()
        keywords: set[str] = set()
        for source in sources:
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.keyword) and node.arg:
                    keywords.add(node.arg)
                elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                    private.add(node.id if isinstance(node, ast.Name) else node.attr)
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    private.add(node.name)
        names = sorted(name for name in private if is_private(name) and not name.endswith("_"))
        prefixes = ("__" if name.startswith("__") else "_" for name in names)
        new = {
            name: f"{prefix}renamed_{number}" for number, (name, prefix) in enumerate(zip(names, prefixes, strict=True))
        }
        return cls(new, frozenset(keywords))

    def rename(self, source: str, *, variables: bool = True) -> str:
        """The same module with other names."""
        tree = ast.parse(source)
        local = bindings(tree) if variables else {}
        kept = {
            local[node]
            for node in ast.walk(tree)
            if isinstance(node, ast.arg) and node.arg in self.keywords
            if node in local
        }
        new = {
            each: f"renamed_{number}" for number, each in enumerate(dict.fromkeys(local.values())) if each not in kept
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._rename_nonlocals(
                    node,
                    {
                        name.id: new.get(local[name], name.id)
                        for name in ast.walk(node)
                        if isinstance(name, ast.Name) and name in local
                    },
                )
        for node in ast.walk(tree):
            part = name_field(node)
            if node in local:
                setattr(node, part, new.get(local[node], getattr(node, part)))
            elif part and getattr(node, part) in self.private:
                setattr(node, part, self.private[getattr(node, part)])
            elif isinstance(node, ast.Attribute | ast.keyword | ast.alias | ast.Constant):
                part = {ast.Attribute: "attr", ast.keyword: "arg", ast.alias: "name", ast.Constant: "value"}[type(node)]
                setattr(node, part, self._private(getattr(node, part)))
        return ast.unparse(tree)

    def _private(self, name: object) -> object:
        return self.private.get(name, name) if isinstance(name, str) else name

    def _rename_nonlocals(self, function: ast.FunctionDef | ast.AsyncFunctionDef, new: Mapping[str, str]) -> None:
        for node in function.body:
            if isinstance(node, ast.Nonlocal):
                node.names = [new.get(name, name) for name in node.names]


def loaded() -> list[Path]:
    """The files of the product that the simulator uses, from the root of the repository."""
    from . import explore, kinds  # noqa: F401

    files = (Path(str(module.__file__)).resolve() for module in product())
    return sorted({file.relative_to(ROOT) for file in files if not file.name.endswith("_pb2.py")})


def write(folder: Path) -> None:
    """The renamed product in `folder`, with its simulator."""
    for room in ROOMS:
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / room, folder / room, symlinks=True, ignore=ignored)
    files = loaded()
    simulator = sorted(file.relative_to(ROOT) for file in (ROOT / "tests/simulation").glob("*.py"))
    private = Names.of(map(_source, files)).private
    keywords = Names.of(map(_source, [*files, *(file for file in simulator if file.name != "mutants.py")])).keywords
    names = Names(private, keywords)
    for file in files:
        (folder / file).write_text(names.rename(_source(file)), encoding="utf-8")
    for file in filter(_extends_product, simulator):
        (folder / file).write_text(names.rename(_source(file), variables=False), encoding="utf-8")


def _extends_product(file: Path) -> bool:
    """A class in this file extends one of the product, and may use what is private to that."""
    nodes = list(ast.walk(ast.parse(_source(file))))
    imports = [
        node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elastic_run")
    ]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    return any(isinstance(node, ast.ClassDef) and names & {ast.unparse(base) for base in node.bases} for node in nodes)


def _source(file: Path) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.renamed", description=__doc__)
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="write the copy here, and leave it")
    folder = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder or Path(temporary) / "product"
        write(folder)
        run = subprocess.run(
            [sys.executable, "-m", "tests.simulation.mutants", "--json"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder / "src")},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    found = {line["name"]: line for line in map(json.loads, run.stdout.splitlines())}
    missed = [mutant for mutant in MUTANTS if found.get(mutant.name, {}).get("rule") != mutant.rule]
    for mutant in missed:
        print(f"{mutant.name}: {found.get(mutant.name, {}).get('what', 'no answer')[-300:]}")
    print(f"{len(MUTANTS) - len(missed)} of {len(MUTANTS)} planted defects are seen in the renamed product")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
