"""The documentation as a site, which `make docs` builds; it fails if a link leads nowhere."""

from __future__ import annotations

import sys
from pathlib import Path

# The page of commands is made from what the suite declares.
DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

project = "ps-allreduce"
html_title = "Parameter servers or all-reduce?"
html_theme = "furo"
extensions = ["myst_parser", "reference"]
myst_heading_anchors = 4
exclude_patterns = ["examples"]
