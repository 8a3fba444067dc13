"""A fork server whose driver tells of two small GPUs at work, and whose tasks do without any.

`python pretended_gpus.py --socket FD`
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from tests.fake_nvml import FakeNvml, busy_gpu
from tests.real.patched_fork_server import serve

MEMORY = {"nvmlDeviceGetMemoryInfo": SimpleNamespace(total=10**8, used=10**7)}

if __name__ == "__main__":
    two = [busy_gpu(f"GPU-{name}", values=MEMORY) for name in ("aaaa", "bbbb")]
    sys.modules["pynvml"] = FakeNvml(*two)  # type: ignore[assignment]
    serve(lambda: "absent_gpu")
