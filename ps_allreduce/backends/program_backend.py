"""Strategies of the suite's own: all of them train a `Program`.

Decides which program a workload asks for.
"""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

from ps_allreduce.backends.protocol import Backend
from ps_allreduce.point.experiment import Experiment
from ps_allreduce.workloads.emulated_accelerator import EmulatedProgram
from ps_allreduce.workloads.keras_program import RealProgram
from ps_allreduce.workloads.program import Program


class ProgramBackend(Backend):
    """A strategy that takes gradients from a function of parameter values."""

    def prepare(self, data_dir: Path) -> None:
        """Build the program, and then what trains it."""
        program = make_program(self._experiment, data_dir)
        self.variables = program.variables
        self.build(program)

    @abstractmethod
    def build(self, program: Program) -> None:
        """Create variables and the worker's own resources; do not trace the step yet."""


def make_program(experiment: Experiment, data_dir: Path) -> Program:
    """The computation that the experiment's workload asks for."""
    load = experiment.of_each
    kind = RealProgram if load.emulated is None else EmulatedProgram
    return kind(load, experiment.num_workers, data_dir)
