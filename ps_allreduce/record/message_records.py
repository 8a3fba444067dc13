"""What each message of a step carries.

Decides what a record holds of the messages; which gradients travel together is decided in
`exchange.buckets`, and where variables are in `point.placement`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """What a worker sends at once: a bucket, or with TensorFlow's own packs a single gradient.

    Attributes:
        server: the parameter server that holds its values; None without servers.
        num_bytes: of its gradients, in float32.
        variables: names of the variables whose gradients it carries, wholly or in part.
    """

    server: int | None = None
    num_bytes: int
    variables: tuple[str, ...]
