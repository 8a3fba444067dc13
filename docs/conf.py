"""The documentation as a site, which `make docs` builds; it fails if a link leads nowhere."""

from __future__ import annotations

project = "ps-allreduce"
html_title = "Parameter servers or all-reduce?"
html_theme = "furo"
extensions = ["myst_parser"]
myst_heading_anchors = 4
exclude_patterns = ["examples"]
