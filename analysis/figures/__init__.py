"""What is drawn, into files only: whatever window system the environment asks for is not used."""

import os

os.environ["MPLBACKEND"] = "agg"
