"""How Sphinx makes a site of these pages, the notebooks and the docstrings.

    python -m sphinx -W --keep-going -c docs . docs/_build/html

The source folder is the repository, so that links between pages work as they do in it.
"""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS)]

import reference  # noqa: E402

import amdjax  # noqa: E402

project, author = "amdjax", "The amdjax authors"
version = release = amdjax.__version__

extensions = ["myst_nb"]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/api/*.md",
    "notebooks/*.ipynb",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]
exclude_patterns = ["docs/README.md"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}

html_theme = "furo"
html_title = f"amdjax {release}"

myst_enable_extensions = ["fieldlist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # CI runs the notebooks; their results are stored
# Formulas and tables of registers are no programs.
suppress_warnings = ["misc.highlighting_failure"]

reference.write(DOCS / "api")
