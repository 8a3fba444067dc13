"""Both at once: each kind of variable goes where it travels cheapest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ps_allreduce.errors import UserError
from ps_allreduce.exchange.stacking import RowRule
from ps_allreduce.point.strategies.base import LookingUp, Servers, StrategySide
from ps_allreduce.point.strategies.stated import Embeddings
from ps_allreduce.point.wire import TCP, Wire, transport_text

if TYPE_CHECKING:
    from ps_allreduce.point.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid(LookingUp):
    """Rows of tables are on servers; all other gradients are averaged by the workers' ring.

    Both are synchronous (Kim et al., "Parallax: Sparsity-aware Data Parallel Training of Deep
    Neural Networks", EuroSys 2019).
    """

    kind: ClassVar[str] = "hybrid"
    label: ClassVar[str] = "hybrid: tables on servers, the rest by all-reduce"
    side: ClassVar[StrategySide] = StrategySide.HYBRID
    fixed: ClassVar[frozenset[str]] = frozenset({"placement", "split_bytes"})
    implied: ClassVar[Mapping[str, object]] = {"staleness": 0, "host_aggregation": False}

    embeddings: Embeddings = Embeddings.SPARSE
    servers: Servers = field(default_factory=lambda: Servers(table_rows=RowRule.MODULO))
    wire: Wire = field(default_factory=Wire)

    def __post_init__(self) -> None:
        if not self.is_sparse:
            raise UserError(
                f"strategy {self.kind} has rows of tables on servers: leave --embeddings "
                f"{self.embeddings} out."
            )

    @classmethod
    def refusal(cls, workload: Workload) -> str:
        """Why there are no rows to be put on servers."""
        return workload.sparse_refusal()

    def columns(self) -> dict[str, object]:
        """Without a placement: servers hold no whole variables."""
        return {**LookingUp.columns(self), "placement": None}

    @property
    def transport(self) -> str:
        """TensorFlow's gRPC, of both; rows travel in float32."""
        return transport_text(TCP, self.wire.gradients)

    def title_parts(self) -> list[str]:
        """Servers, and what is changed."""
        layout = [str(self.servers.layout)] if self.servers.layout.is_apart else []
        rows = [] if self.servers.table_rows is None else [self.servers.table_rows.phrase]
        return [f"{self.servers.num_ps} ps", *layout, *self.wire.title_parts(), *rows]
