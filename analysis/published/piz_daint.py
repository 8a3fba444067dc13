"""The study of Piz Daint: its numbers, and what sets the sweep `piz-daint` apart from it."""

from __future__ import annotations

from functools import partial

from analysis.published.beside import PublishedCurve, placed, show_curves
from analysis.published.study import PublishedStudy
from ps_allreduce.point.placement import Policy

CURVE = PublishedCurve(
    system="published: Piz Daint, greedy or round robin",
    csv="piz-daint.csv",
    series={
        "here, round robin": placed(Policy.ROUND_ROBIN),
        "here, partitioned": placed(Policy.PARTITIONED),
    },
)

PIZ_DAINT = PublishedStudy(
    name="piz-daint",
    source="Bugliarello, Distributed TensorFlow: A performance evaluation, CSCS 2017; "
    "github.com/e-bug/distributed-tensorflow-benchmarks, InceptionV3, batch 64, synthetic images, "
    "TensorFlow 1.1, mean of 5 runs.",
    differences=(
        "The original ran on hosts with a P100 each and the Aries network, with TensorFlow 1.1.",
        "Its mode parameter_server places variables greedily by bytes, distributed_replicated "
        "places them round robin; it did not cut variables.",
        "In the small form there are as many servers as workers; the original searched.",
        "It fetched values before a step and sent gradients during it; here values come back while "
        "gradients still go out, so that a hot server costs less.",
        "It sent every variable by itself; here variables travel in buckets.",
        "Its base is one worker with one server; here it is a worker without any.",
    ),
    show=partial(show_curves, [CURVE]),
)
