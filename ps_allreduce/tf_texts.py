"""Unpublished environment variables of TensorFlow, and its messages that the suite reads.

Decides which variables are set and how a message is recognised.  What follows from a message is
decided where it is read.  Each item says why it is needed.  `tests/real/test_tf_internals.py` looks
for the variables in TensorFlow or at their effect, and provokes the messages that need no GPU.
"""

from __future__ import annotations

import re

#: For every task.  A task binds a port that the fork server holds for it, which needs SO_REUSEPORT.
#: The second lets calls to a task that has failed fail too.  It is TensorFlow's default, stated in
#: case the environment says otherwise.
TASK_ENVIRONMENT = {"TF_GRPC_REUSE_PORT": "true", "GRPC_FAIL_FAST": "use_caller"}

#: What a server says when it cannot bind its port, and what the operating system says then.
PORT_TAKEN = ("Could not start gRPC server", "Address already in use")

#: Want of memory.  TensorFlow's allocators say the first, NumPy says "Unable to allocate".  What
#: follows comes from CUDA's libraries and from a failed copy to a GPU (tensorflow issue #7025).
OUT_OF_MEMORY = re.compile(
    r"OOM when allocating|out of memory|failed to allocate memory|Unable to allocate|"
    r"_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|Dst tensor is not initialized",
    re.IGNORECASE,
)

#: Where an allocator failed: job, task, kind and number of the device; `localhost` is the process
#: itself.
ALLOCATOR = re.compile(r"on (?:/job:(\w+)/replica:\d+/task:(\d+))?/device:(\w+):(\d+)")

#: What an allocator had no room for: shape and type.
TENSOR = re.compile(r"tensor with shape(\[[\d,]*\]) and type (\w+)")

#: Names the node that failed, on the line after the cause.
NODE = "[[{{node"

#: Which operation failed on which device; users know neither.
PLACES = re.compile(r"\{\{function_node [^}]*\}\} ?|\s*\[Op:\w+\]")

#: Follows the cause, in every operation that comes after an aborted collective.
AFTERTHOUGHT = "The error could be from a previous operation."

#: What an iterator says that has no more examples, and what that means: the suite repeats a dataset
#: without end, unless it holds nothing.
ENDED = "End of sequence"
HOLDS_NOTHING = f"{ENDED}: the dataset holds no example for this worker"

#: Lines that TensorFlow writes when all is well.
CHATTER = re.compile(
    r"[IW]\d{4} |\d{4}-\d\d-\d\d [\d:.]+: [IW] |WARNING: All log messages|To enable the following"
)


def essence(text: str) -> str:
    """The line of an error message that says what happened.

    TensorFlow puts it behind a trace of the graph, right before the node's name.
    """
    stripped = [line.strip() for line in text.strip().splitlines()]
    lines = [line for line in stripped if line and not line.startswith(AFTERTHOUGHT)] or [""]
    nodes = [number for number, line in enumerate(lines) if line.startswith(NODE)]
    line = PLACES.sub("", lines[nodes[0] - 1 if nodes and nodes[0] else 0])[:300]
    return HOLDS_NOTHING if line.startswith(ENDED) else line


def cause_of_file_error(text: str) -> str:
    """Why a file could not be used: TensorFlow names the file first, then a semicolon."""
    return text.rsplit("; ", maxsplit=1)[-1].strip()
