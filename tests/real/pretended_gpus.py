"""A fork server whose host has GPUs that are not there, and whose tasks do without any.

`python pretended_gpus.py --socket FD`
"""

from __future__ import annotations

from tests.real.patched_fork_server import serve

if __name__ == "__main__":
    serve(lambda: "absent_gpu")
