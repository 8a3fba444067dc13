"""Strategies of the suite's own: all of them train a `Program`.

Decides which program a workload asks for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from ps_allreduce.backends.contract import Backend, Rows
from ps_allreduce.backends.sparse_gradients import sparse_gradient
from ps_allreduce.point.evaluation import Evaluation
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.record.sparse import SparseGradient
from ps_allreduce.workloads.emulated_accelerator import EmulatedProgram
from ps_allreduce.workloads.keras_program import RealProgram
from ps_allreduce.workloads.program import Program


class ProgramBackend(Backend):
    """A strategy that takes gradients from a function of parameter values."""

    def prepare(self, data_dir: Path) -> None:
        """Build the program, and then what trains it."""
        program = make_program(self._experiment, data_dir)
        self.variables, self._sparse = program.variables, program.sparse
        self.build(program)

    @abstractmethod
    def build(self, program: Program) -> None:
        """Create variables and the worker's own resources; do not trace the step yet."""

    def evaluate(self, evaluation: Evaluation) -> Rows:
        """Evaluate a batch on each worker that does not count, and then all batches."""
        shares = evaluation.shares(self._experiment.num_workers)
        self.evaluate_batches([min(1, share) for share in shares])
        self.agree(0.0)
        rows = self.evaluate_batches(shares)
        self.agree(0.0)  # nobody leaves while others evaluate
        return rows

    def sparse_gradients(self) -> tuple[SparseGradient, ...]:
        """Those of the program."""
        return tuple(sparse_gradient(*each) for each in self._sparse.values())

    @abstractmethod
    def evaluate_batches(self, shares: Sequence[int]) -> Rows:
        """Evaluate so many batches on each worker, those that this task drives."""


def make_program(experiment: Experiment, data_dir: Path) -> Program:
    """The computation that the experiment's workload asks for."""
    load = experiment.of_each
    kind = RealProgram if load.emulated is None else EmulatedProgram
    return kind(load, experiment.num_workers, data_dir, experiment.evaluation)
