"""What pyproject.toml cannot say: an index page shows the README without links to files, which lead nowhere there."""

import re
from pathlib import Path

from setuptools import setup

README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")

setup(
    long_description=re.sub(r"\[([^\]]+)\]\((?!https?://)[^)]*\)", r"\1", README),
    long_description_content_type="text/markdown",
)
